package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"weft/cmd/internal/control"
)

// mute is after how long without an answer of a device it is said since when; it may also be that weftd had no time to ask.
const mute = 3 * time.Second

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
	late := map[string]time.Time{}
	for _, e := range p.Peers {
		for _, x := range e.Encryption {
			if !x.Asked.IsZero() && now.Sub(x.Asked) > mute {
				late[x.Device] = x.Asked
			}
		}
	}
	for _, device := range slices.Sorted(maps.Keys(late)) {
		fmt.Fprintf(w, "\n%s was last heard %s: what is above is of then. One whose process hangs is replaced within a minute (weft status)\n", device, ago(late[device], now))
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
