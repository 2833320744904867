// Package show has the commands that print what weftd, the store and the history say: status, peers, pods,
// lease list, events and top. Each asks, and prints a table or, with --json, the answer itself.
package show

import (
	"github.com/spf13/cobra"

	"weft/cmd/weft/internal/cli"
)

// Commands returns the commands of this package but LeaseList, which is one of a group.
func Commands(app *cli.App) []*cobra.Command {
	return []*cobra.Command{statusCommand(app), peersCommand(app), podsCommand(app), eventsCommand(app),
		topCommand(app)}
}
