package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// ErrUsage is wrapped by every error that is about the command line itself.
var ErrUsage = errors.New("wrong usage")

// usageError marks an error as one that wraps errUsage, and leaves its text as it is.
type usageError struct{ error }

func (u usageError) Unwrap() []error { return []error{u.error, ErrUsage} }

// AsUsage makes err one about the command line.
func AsUsage(err error) error {
	if err == nil || errors.Is(err, ErrUsage) {
		return err
	}
	return usageError{err}
}

// Usagef returns an error about the command line.
func Usagef(format string, a ...any) error { return usageError{fmt.Errorf(format, a...)} }

// Complete adds cobra's own commands to root, whose output is set, and makes all of them strict.
func Complete(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd("completion") // with this argument it is added whatever the arguments are
	root.SetFlagErrorFunc(badFlag)
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Run, c.RunE = nil, helpFor
		}
	}
	strict(root)
	completeAll(root)
}

// strict makes arguments that cmd, or a command below it, does not understand an error about usage, also
// where cobra would print its help and succeed.
func strict(cmd *cobra.Command) {
	if cmd.HasSubCommands() {
		if !cmd.Runnable() {
			cmd.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
			cmd.Args = noSuchCommand
			cmd.DisableFlagsInUseLine = true
		}
		cmd.SuggestionsMinimumDistance = 2
	}
	args, before := cmd.Args, cmd.PreRunE
	if args != nil {
		cmd.Args = func(c *cobra.Command, a []string) error {
			return AsUsage(argumentFault(c, a, args(c, a)))
		}
	}
	cmd.PreRunE = func(c *cobra.Command, a []string) error {
		if err := errors.Join(c.ValidateRequiredFlags(), c.ValidateFlagGroups()); err != nil {
			return AsUsage(err)
		}
		if before != nil {
			return before(c, a)
		}
		return nil
	}
	for _, c := range cmd.Commands() {
		strict(c)
	}
}

// badFlag makes the error about a flag that cobra cannot parse. An argument before the flag may be the real
// fault.
func badFlag(cmd *cobra.Command, err error) error {
	if rest := cmd.Flags().Args(); cmd.HasSubCommands() && len(rest) > 0 {
		return noSuchCommand(cmd, rest)
	}
	return AsUsage(flagFault(cmd, err))
}

// WithUsage returns err with the usage line of cmd behind it, if it is about the command line.
func WithUsage(cmd *cobra.Command, err error) error {
	if !errors.Is(err, ErrUsage) {
		return err
	}
	return Usagef("%w\nusage: %s\n%s --help says more", err, usageLine(cmd), cmd.CommandPath())
}

// usageLine shows how cmd is called.
func usageLine(cmd *cobra.Command) string {
	if cmd.HasSubCommands() && cmd.DisableFlagsInUseLine { // a group
		return cmd.CommandPath() + " COMMAND"
	}
	return cmd.UseLine()
}

// noSuchCommand refuses any argument of a command that is only a group of others.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("%q is no command of %s", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return usageError{errors.New(text)}
}

// helpFor is `weft help`. Its error names a command that it does not know.
func helpFor(cmd *cobra.Command, args []string) error {
	of, rest, err := cmd.Root().Find(args)
	if err != nil {
		return AsUsage(err)
	}
	if of.HasSubCommands() {
		if err := noSuchCommand(of, rest); err != nil {
			return err
		}
	}
	of.InitDefaultHelpFlag()
	return of.Help()
}
