package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Completer says what may stand at a place of the command line.
type Completer = cobra.CompletionFunc

// completeFiles has those flags of cmd completed to files that take the name of one.
func completeFiles(cmd *cobra.Command) {
	values := map[string]Completer{}
	for _, name := range []string{"cache-dir", "reservations"} {
		values[name] = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	}
	for name := range strings.FieldsSeq("output write json html markdown benchstat net-conf weftd subnet-file " +
		"kubeconfig-file control-socket etcd-cafile etcd-certfile etcd-keyfile etcd-password-file netns binary " +
		"route-hook-token-file route-hook-cafile route-hook-certfile route-hook-keyfile") {
		values[name] = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	}
	CompleteFlags(cmd, values)
}

// CompleteFlags has those flags of cmd completed that it has among values and that have nothing yet.
func CompleteFlags(cmd *cobra.Command, values map[string]Completer) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		_, has := cmd.GetFlagCompletionFunc(f.Name)
		if value := values[f.Name]; value != nil && !has && f.Value.Type() != "bool" {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, value) // the flag is there
		}
	})
}

func OneOf(l ...string) Completer {
	return cobra.FixedCompletions(l, cobra.ShellCompDirectiveNoFileComp)
}

// ManyOf completes the last word of several with commas between them, and none twice.
func ManyOf(l []string) Completer {
	return func(_ *cobra.Command, _ []string, typed string) (out []string, _ cobra.ShellCompDirective) {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		for _, w := range l {
			if !strings.Contains(","+before, ","+w+",") {
				out = append(out, before+w)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}
