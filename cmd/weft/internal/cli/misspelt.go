package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagFault says of a flag that cannot be parsed what is wanted: a flag that is like it, or the kind of
// value.
func flagFault(cmd *cobra.Command, err error) error {
	unknown, value := (*pflag.NotExistError)(nil), (*pflag.InvalidValueError)(nil)
	switch {
	case errors.As(err, &value):
		wants := map[string]string{"int": "a whole number", "uint": "a whole number from 0", "float64": "a number",
			"bool": "true or false", "duration": "a time, such as 30s or 5m"}
		f := value.GetFlag()
		if want := wants[f.Value.Type()]; want != "" {
			return fmt.Errorf("--%s %q: want %s", f.Name, value.GetValue(), want)
		}
	case errors.As(err, &unknown) && cmd.Flags().Lookup(unknown.GetSpecifiedShortnames()) != nil:
		// with one dash, as weftd's flags may be given
		return fmt.Errorf("-%s: did you mean --%[1]s?", unknown.GetSpecifiedShortnames())
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		if near := nearFlags(cmd, unknown.GetSpecifiedName()); len(near) > 0 {
			return fmt.Errorf("%w: did you mean %s?", err, strings.Join(near, " or "))
		}
	}
	return err
}

// nearFlags returns the flags of cmd that are most like word.
func nearFlags(cmd *cobra.Command, word string) (near []string) {
	least := len(word)/2 + 1 // so that a short word is not like all short names
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		d := distance(f.Name, word)
		if strings.HasPrefix(f.Name, word) || strings.HasSuffix(f.Name, "-"+word) {
			d = 1
		}
		switch {
		case f.Hidden || d > 2 || d >= least && len(near) == 0 || d > least:
			return
		case d < least:
			near, least = nil, d
		}
		near = append(near, "--"+f.Name)
	})
	slices.Sort(near)
	return near
}

// argumentFault says of arguments that cobra refuses which is too many, or that one is missing.
func argumentFault(cmd *cobra.Command, args []string, err error) error {
	if err == nil || errors.Is(err, ErrUsage) {
		return err
	}
	text := err.Error()
	switch none := cobra.NoArgs(cmd, args); {
	case none != nil && none.Error() == text && cmd.HasSubCommands():
		return noSuchCommand(cmd, args)
	case none != nil && none.Error() == text:
		return fmt.Errorf("%q: %s takes no argument", args[0], cmd.CommandPath())
	case strings.HasPrefix(text, "requires at least"), strings.HasPrefix(text, "accepts") && len(args) == 0:
		return errors.New("an argument is missing")
	case strings.HasPrefix(text, "accepts"):
		return fmt.Errorf("%q is one argument too many", args[len(args)-1])
	}
	return err
}
