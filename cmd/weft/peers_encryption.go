package main

import (
	"fmt"
	"io"
	"time"

	"weft/cmd/internal/control"
)

// printEncryption lists what the devices of WireGuard know of each peer, and below why one is not heard.
func printEncryption(w io.Writer, p control.Peers, now time.Time) error {
	t := newList(w, "ENCRYPTED TO", "DEVICE", "ENDPOINT", "LATEST HANDSHAKE", "SENT", "RECEIVED", "PUBLIC KEY")
	for _, e := range p.Peers {
		for _, x := range e.Encryption {
			t.row(orDash(e.Name), x.Device, x.Endpoint, ago(x.Handshake, now), size(x.TxBytes), size(x.RxBytes),
				x.PublicKey)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, e := range p.Peers {
		for _, x := range e.Encryption {
			if x.Likely != "" {
				fmt.Fprintf(w, "\n%s: %s: %s\n", orDash(e.Name), clean(x.Likely), clean(x.Look))
			}
		}
	}
	return nil
}
