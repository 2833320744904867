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

// Hosts are the nodes of a lab that is up, with their addresses on the wire, and its pods.
func Hosts(name string) (out []holder.PodInfo, err error) {
	labs, err := holder.List()
	for _, l := range labs {
		if l.Name != name || l.Info == nil {
			continue
		}
		for _, n := range l.Info.Nodes {
			out = append(append(out, holder.PodInfo{Name: n.Name, V4: n.Underlay4, V6: n.Underlay6}), n.Pods...)
		}
	}
	return out, err
}

// HostNames are those of Hosts.
func HostNames(name string) (out []string) {
	hosts, _ := Hosts(name) // without labs there is nothing to complete
	for _, h := range hosts {
		out = append(out, h.Name)
	}
	return out
}
