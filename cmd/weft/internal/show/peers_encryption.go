package show

import (
	"fmt"
	"io"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
)

// printEncryption lists what the devices of WireGuard know of each peer, and below why one is not heard.
func printEncryption(w io.Writer, p control.Peers, now time.Time) error {
	t := cli.NewList(w, "ENCRYPTED TO", "DEVICE", "ENDPOINT", "LATEST HANDSHAKE", "SENT", "RECEIVED", "PUBLIC KEY")
	for _, e := range p.Peers {
		for _, x := range e.Encryption {
			t.Row(cli.OrDash(e.Name), x.Device, x.Endpoint, cli.Ago(x.Handshake, now), cli.Size(x.TxBytes), cli.Size(x.RxBytes),
				x.PublicKey)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, e := range p.Peers {
		for _, x := range e.Encryption {
			if x.Likely != "" {
				fmt.Fprintf(w, "\n%s: %s: %s\n", cli.OrDash(e.Name), cli.Clean(x.Likely), cli.Clean(x.Look))
			}
		}
	}
	return nil
}
