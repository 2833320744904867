package main

import (
	"fmt"
	"io"
	"time"

	"weft/cmd/internal/control"
)

// printEncryption lists what the devices of WireGuard know of each peer, and below why one is not heard.
func printEncryption(w io.Writer, p control.Peers, now time.Time) error {
	t := newTable(w)
	heading := "\nENCRYPTED TO\tDEVICE\tENDPOINT\tLATEST HANDSHAKE\tSENT\tRECEIVED\tPUBLIC KEY\n"
	for _, e := range p.Peers {
		for _, x := range e.Encryption {
			fmt.Fprint(t, heading)
			heading = ""
			shaken := "never"
			if !x.Handshake.IsZero() {
				shaken = ago(x.Handshake, now)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", orDash(e.Name), x.Device, x.Endpoint, shaken, size(x.TxBytes), size(x.RxBytes), clean(x.PublicKey))
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
