// Package manage has the commands that change something on the node or in the store: lease release, reload,
// rotate-key, upgrade and cleanup.
package manage

import (
	"github.com/spf13/cobra"

	"weft/cmd/weft/internal/cli"
)

// Commands returns the commands of this package but LeaseRelease, which is one of a group.
func Commands(app *cli.App) []*cobra.Command {
	return []*cobra.Command{reloadCommand(app), rotateKeyCommand(app), upgradeCommand(app),
		cleanupCommand(app)}
}
