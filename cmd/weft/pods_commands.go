// Package pods has weft attach and weft detach, which join a network namespace to the overlay without a bridge, and take
// it out again.
package main

import "github.com/spf13/cobra"

// podsCommands returns the commands of this package.
func podsCommands(app *App) []*cobra.Command {
	return []*cobra.Command{attachCommand(app), detachCommand(app), insideCommand()}
}
