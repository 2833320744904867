// Package diag has the commands that look for what is wrong: doctor, ping, matrix, capture and report. Causes are named by
// package diagnose; these commands ask, and print.
package main

import "github.com/spf13/cobra"

// diagCommands returns the commands of this package.
func diagCommands(app *App) []*cobra.Command {
	return []*cobra.Command{doctorCommand(app), pingCommand(app), matrixCommand(app), captureCommand(app), reportCommand(app)}
}
