package probe

import "net/netip"

// Ask has one question sent to a peer at once, beside those of the turns. Its answer is whoever's who drew
// Nonce: it changes nothing of what is known of the way, and counts for no loss.
type Ask struct {
	To    netip.Addr
	Nonce uint64
}

func (Ask) event() {}

// askNow sends the question of an Ask. A way that is asked by ICMP has nobody who would answer it.
func (c *Core) askNow(e Ask) {
	if w := c.ways[e.To]; w != nil && !w.isEcho() {
		c.send(w, c.datagram(w, Question, 0, e.Nonce))
	}
}

// portOf is where that address of a peer answers questions; 0 if it does not, or is no peer's.
func (c *Core) portOf(a netip.Addr) uint16 {
	if w := c.ways[a]; w != nil {
		return w.Port
	}
	return 0
}
