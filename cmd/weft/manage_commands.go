// Package manage has the commands that change something on the node or in the store: lease release, reload, rotate-key,
// upgrade and cleanup.
package main

import "github.com/spf13/cobra"

// manageCommands returns the commands of this package.
func manageCommands(app *App) []*cobra.Command {
	return []*cobra.Command{reloadCommand(app), rotateKeyCommand(app), upgradeCommand(app), cleanupCommand(app)}
}
