package labcmd

import (
	"github.com/spf13/cobra"

	"weft/test/lab/holder"
)

func completeLabs(*cobra.Command, []string, string) (out []string, _ cobra.ShellCompDirective) {
	labs, _ := holder.List() // without labs there is nothing to complete
	for _, l := range labs {
		out = append(out, l.Name)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// Hosts are the nodes and pods of a lab.
func Hosts(name string) (out []string) {
	labs, _ := holder.List() // without labs there is nothing to complete
	for _, l := range labs {
		if l.Name != name || l.Info == nil {
			continue
		}
		for _, n := range l.Info.Nodes {
			out = append(out, n.Name)
			for _, p := range n.Pods {
				out = append(out, p.Name)
			}
		}
	}
	return out
}
