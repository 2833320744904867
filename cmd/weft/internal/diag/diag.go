// Package diag has the commands that look for what is wrong: doctor, ping, matrix, capture and report. They
// ask and print; causes are named by package diagnose.
package diag

import (
	"github.com/spf13/cobra"

	"weft/cmd/weft/internal/cli"
)

// Commands returns the commands of this package.
func Commands(app *cli.App) []*cobra.Command {
	return []*cobra.Command{doctorCommand(app), pingCommand(app), matrixCommand(app), captureCommand(app),
		reportCommand(app)}
}

// status is the exit status of a report that was printed, unless that failed.
func status(printed error, good bool) error {
	if printed == nil && !good {
		return cli.ExitFailure
	}
	return printed
}
