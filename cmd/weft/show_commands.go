// Package show has the commands that print what weftd, the store and the history say: status, peers, pods, lease list, events
// and top. Each asks, and prints a table or, with --json, the answer itself.
package main

import "github.com/spf13/cobra"

// showCommands returns the commands of this package.
func showCommands(app *App) []*cobra.Command {
	return []*cobra.Command{statusCommand(app), peersCommand(app), podsCommand(app), eventsCommand(app), topCommand(app)}
}
