// Package labcmd has weft lab: nodes and pods in network namespaces of this machine.
package labcmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"weft/cmd/weft/internal/cli"
	"weft/test/lab/holder"
)

// defaultLab is the name that up, exec and down mean when none is given.
const defaultLab = "lab"

// Command is `weft lab`: a cluster in network namespaces of this machine.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Nodes and pods in network namespaces of this machine",
		Long: "Nodes and pods in network namespaces of this machine, a weftd in each node.\n" +
			"An ordinary user's lab runs in a user namespace, where those are allowed.",
		PersistentPreRunE: Init,
	}
	cmd.AddCommand(labRunCommand(), labUpCommand(), labExecCommand(), labDownCommand(), labListCommand())
	return cmd
}

// Init runs before any command that makes labs. A process that is only the first of a new pid namespace starts
// its child here, which does the work.
func Init(*cobra.Command, []string) error {
	is, status, err := holder.Init()
	if err == nil && is {
		return cli.ExitStatus(status) // 0 too
	}
	return err
}

func labExecCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "exec [flags] HOST -- COMMAND [ARG…]",
		Short: "Run a command on a node or pod of a lab that is up",
		Long: "Run a command on a node (node1), a pod (node1-pod1), the wire or the store of a lab.\n" +
			"Its exit status is the command's. On a node or pod, WEFTD_CONTROL_SOCKET names the node's weftd,\n" +
			"and WEFT_RESERVATIONS where weft attach reserves addresses of its pods.",
		Example: "  weft lab exec node1 -- ip route\n  weft lab exec node1-pod1 -- ping -c 3 10.42.2.2",
		Args:    cobra.MinimumNArgs(2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string,
			cobra.ShellCompDirective) {
			if len(args) > 0 { // behind the host stands a command, of which the shell knows the files
				return nil, cobra.ShellCompDirectiveDefault
			}
			return HostNames(name), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			host, command := args[0], args[1:]
			if command[0] == "--" {
				command = command[1:]
			}
			switch {
			case len(command) == 0:
				return cli.Usagef("no command to run on %s", host)
			case strings.HasPrefix(args[1], "-") && args[1] != "--":
				return cli.Usagef("%s stands behind %s, where the command begins: flags stand before it",
					args[1], host)
			}
			return cli.StatusError(holder.Exec(name, host, command))
		},
	}
	NameLab(cmd, &name, defaultLab, "the lab's `name`")
	cmd.Flags().SetInterspersed(false) // what follows HOST is the command's
	return cmd
}

func labDownCommand() *cobra.Command {
	var all bool
	var name string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End a lab, or clear away what a dead one left",
		Args:  cobra.MaximumNArgs(1), // a name, as it was given before there was --lab
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string,
			cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeLabs(cmd, args, typed)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			named := cmd.Flags().Changed("lab")
			names := []string{name}
			switch {
			case all && named || all && len(args) > 0 || named && len(args) > 0:
				return cli.Usagef("want one of --all and --lab NAME")
			case all:
				labs, err := holder.List()
				if err != nil {
					return err
				}
				names = nil
				for _, l := range labs {
					names = append(names, l.Name)
				}
			case len(args) == 1:
				names = args
			}
			return labDown(cmd, names)
		},
	}
	NameLab(cmd, &name, defaultLab, "the lab's `name`")
	cmd.Flags().BoolVar(&all, "all", false, "all labs of this user, and all leftovers")
	return cmd
}

// labDown ends each of the labs, whatever becomes of the others.
func labDown(cmd *cobra.Command, names []string) error {
	var faults []error
	for _, name := range names {
		alive, err := holder.Down(name)
		switch {
		case err != nil:
			faults = append(faults, err)
		case alive:
			fmt.Fprintf(cmd.ErrOrStderr(), "lab %s: down\n", name)
		default:
			fmt.Fprintf(cmd.ErrOrStderr(), "lab %s: was dead, leftovers removed\n", name)
		}
	}
	return errors.Join(faults...)
}

func labListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "The labs of this user, and leftovers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			labs, err := holder.List()
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), labs)
			}
			t := cli.NewTable(cmd.OutOrStdout(), "LAB", "STATE", "WIRE", "NODES")
			for _, l := range labs {
				state, wire, nodes := "leftover", "", ""
				switch {
				case l.Info != nil:
					state, wire, nodes = "up", l.Info.Wire, nodeNames(l.Info)
				case l.Alive:
					state = "busy"
				}
				t.Row(l.Name, state, wire, nodes)
			}
			return t.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func nodeNames(i *holder.Info) string {
	var names []string
	for _, n := range i.Nodes {
		names = append(names, n.Name)
	}
	return strings.Join(names, " ")
}

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
