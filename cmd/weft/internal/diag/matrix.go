package diag

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
)

// matrixFlags are those of weft matrix.
type matrixFlags struct {
	*cli.App
	nodes []string
}

func matrixCommand(app *cli.App) *cobra.Command {
	f := matrixFlags{App: app}
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Show who reaches whom, with round trip and loss, as all nodes say themselves",
		Long: "Show who reaches whom, with round trip and loss, as all nodes say themselves. This node's weftd " +
			"asks the others through the overlay what\n" +
			"their probes have found, and waits five seconds at most. A node that does not answer, or cannot tell " +
			"since it runs flannel or an\n" +
			"older weft, says so in its row; what others know of it is shown. For each pair in trouble there is the " +
			"likely cause and what to look at.\n\n" +
			"A cell of the grid is what the node of its row says of the node of its column: the round trip in " +
			"milliseconds, x for no answer,\n" +
			"a share for packets that are lost, mtu for large ones that are, ? for what nobody told. Where the " +
			"terminal is too narrow, only\n" +
			"nodes in trouble have rows and columns, or each a line. Of more than 256 peers only what is not well " +
			"is asked for.\n\n" +
			cli.NodeArgument + "\n\n" +
			"Exit status: 0 if all that is known reaches all, 1 if something does not, loses packets, or weftd " +
			"cannot ask; 2 for wrong usage.",
		Example: "  weft matrix\n  weft matrix --node db1\n  weft matrix --json | jq -r '.troubles[].found'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := f.Client().Matrix(cmd.Context())
			if err != nil {
				return err
			}
			only, err := pairsOf(m, f.nodes)
			if err != nil {
				return err
			}
			r := read(m, only)
			w := cmd.OutOrStdout()
			if f.JSON {
				return status(cli.PrintDocument(w, r), r.Reached)
			}
			return status(printMatrix(w, r, len(f.nodes) > 0, lineWidth(w)), r.Reached)
		},
	}
	f.Bind(cmd)
	cmd.Flags().StringArrayVar(&f.nodes, "node", nil,
		"look only at pairs with this `node`; may be given several times")
	if err := cmd.RegisterFlagCompletionFunc("node", f.CompletePeers); err != nil {
		cmd.Long += "\n" + err.Error() // the flag is defined above
	}
	return cmd
}

// pairsOf chooses the pairs with the nodes that words name, all without words.
func pairsOf(m control.Matrix, words []string) (func(a, b int) bool, error) {
	if len(words) == 0 {
		return func(int, int) bool { return true }, nil
	}
	var keys []cli.NodeKeys
	for _, n := range m.Nodes {
		keys = append(keys, cli.NodeKeys{Name: n.Name, ID: n.NodeID, Subnets: n.Subnets,
			Addresses: []netip.Addr{n.Address}})
	}
	var chosen []int
	for _, w := range words {
		i, err := cli.FindNode(keys, w)
		if err != nil {
			return nil, fmt.Errorf("--node: %w", err)
		}
		chosen = append(chosen, i)
	}
	return func(a, b int) bool { return slices.Contains(chosen, a) || slices.Contains(chosen, b) }, nil
}
