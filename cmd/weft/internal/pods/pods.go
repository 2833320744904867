// Package pods has weft attach and weft detach, which join a network namespace to the overlay without a
// bridge, and take it out again.
package pods

import (
	"github.com/spf13/cobra"

	"weft/cmd/weft/internal/cli"
)

// Commands returns the commands of this package.
func Commands(app *cli.App) []*cobra.Command {
	return []*cobra.Command{attachCommand(app), detachCommand(app), insideCommand()}
}
