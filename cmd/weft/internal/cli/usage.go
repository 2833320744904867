package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// ErrUsage is wrapped by every error that is about the command line itself.
var ErrUsage = errors.New("wrong usage")

// usageError marks an error as one that wraps ErrUsage, and leaves its text as it is.
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

// Complete adds cobra's own commands to root, whose output is set. It makes whatever cobra refuses of a
// command line an error about usage.
func Complete(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd("completion") // with this argument it is added whatever the arguments are
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return AsUsage(err) })
	if help, _, err := root.Find([]string{"help"}); err == nil { // it prints weft's for what it does not know
		help.Args = aCommand
	}
	strict(root)
}

// aCommand refuses arguments that name no command.
func aCommand(cmd *cobra.Command, args []string) error {
	of, rest, err := cmd.Root().Find(args)
	if err == nil && of.HasSubCommands() {
		err = noSuchCommand(of, rest)
	}
	return err
}

func strict(cmd *cobra.Command) {
	completeFiles(cmd)
	if !cmd.Runnable() { // alone it prints its help, and any argument is a command that is not there
		cmd.RunE, cmd.Args = func(c *cobra.Command, _ []string) error { return c.Help() }, noSuchCommand
		cmd.DisableFlagsInUseLine, cmd.SuggestionsMinimumDistance = true, 2
	}
	if args := cmd.Args; args != nil {
		cmd.Args = func(c *cobra.Command, a []string) error { return AsUsage(args(c, a)) }
	}
	cmd.PreRunE = func(c *cobra.Command, _ []string) error {
		return AsUsage(errors.Join(c.ValidateRequiredFlags(), c.ValidateFlagGroups()))
	}
	for _, c := range cmd.Commands() {
		strict(c)
	}
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
	return errors.New(text)
}

// WithUsage returns err with the usage line of cmd behind it, if it is about the command line.
func WithUsage(cmd *cobra.Command, err error) error {
	if !errors.Is(err, ErrUsage) {
		return err
	}
	line := cmd.UseLine()
	if cmd.HasSubCommands() && cmd.DisableFlagsInUseLine { // a group
		line = cmd.CommandPath() + " COMMAND"
	}
	return Usagef("%w\nusage: %s\n%s --help says more", err, line, cmd.CommandPath())
}
