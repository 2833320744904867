package main

import (
	"fmt"
	"io"
	"time"

	"weft/cmd/internal/control"
)

// unreachableFor is how long a message of ICMP is shown as what is so.
const unreachableFor = 5 * time.Minute

// printUnreachable lists the peers of which ICMP has lately said that datagrams do not reach them, with what to look at.
func printUnreachable(w io.Writer, p control.Peers, now time.Time) {
	for _, e := range p.Peers {
		u := e.Unreachable
		if u == nil || now.Sub(u.Last) > unreachableFor {
			continue
		}
		look := "the rules of " + u.By.String() + " (nft list ruleset, iptables -S)"
		switch {
		case u.Says == "port unreachable" && u.By == e.Address:
			look = "on that node: systemctl status weftd, and rules that reject the port (nft list ruleset, iptables -S)"
		case u.Says == "protocol unreachable" && u.By == e.Address:
			look = "on that node: systemctl status weftd (or flanneld): neither it nor a device of the kernel takes the overlay's packets (ip -d link show type ipip)"
		case u.Says == "host unreachable", u.Says == "network unreachable":
			look = "whether that machine runs, and the routes of " + u.By.String()
		}
		fmt.Fprintf(w, "\n%s (%v): ICMP from %v says %s of what is sent to it, the last time %s, %d in all\n  look at: %s; weft ping %s\n",
			orDash(e.Name), e.Address, u.By, clean(u.Says), ago(u.Last, now), u.Count, look, orDash(e.Name))
	}
}
