package daemon

import (
	"fmt"
	"time"

	"weft/tunnel"
)

// forgerRecent is how long an address that was forged on this host is named after its last packet, and forgerMost how many are.
const (
	forgerRecent = 10 * time.Minute
	forgerMost   = 3
)

// forgerNotes name inner sources that are other nodes' and that packets of this host had lately.
func forgerNotes(l []tunnel.Stranger, now time.Time) (notes []string) {
	for _, s := range l {
		if now.Sub(s.LastRx) < forgerRecent && len(notes) < forgerMost {
			notes = append(notes, fmt.Sprintf("a pod or program of this host sends as %v, which is of another node's subnet: %d packets were dropped (foreign_source); find it by that address, or delete the pod if its node had that subnet before", s.Addr, s.Packets))
		}
	}
	return notes
}
