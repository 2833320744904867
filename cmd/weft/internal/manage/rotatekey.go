package manage

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"weft/cmd/weft/internal/cli"
)

func rotateKeyCommand(f *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate-key",
		Short: "Give this node a new private key, with backend wireguard",
		Long: "Give this node a new private key, with backend wireguard. The key is made and kept by weftd; the " +
			"node's record has the new public key at\n" +
			"once, and peers take it up when they read that. What this node and a peer send each other until then " +
			"is lost: as long as a write to the\n" +
			"store and a watch take, and a round trip more. Rotate one node after the other.\n\n" +
			"Exit status: 0 if the node has a new key, 1 if it has the old one, 2 for wrong usage.",
		Example: "  weft rotate-key\n  weft rotate-key --json | jq -r .publicKey",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := f.Client().RotateKey(cmd.Context())
			if err != nil {
				return err
			}
			return f.Print(cmd.OutOrStdout(), r, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "public key %s, before %s\n", cli.Clean(r.PublicKey), cli.Clean(r.Before))
				return err
			})
		},
	}
	f.Bind(cmd)
	return cmd
}
