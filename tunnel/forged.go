package tunnel

import (
	"net/netip"
	"time"

	"weft/encap"
)

// forged returns the peer whose subnet src is in, for a packet that comes from this host. It returns nil if
// this host may use src: its own addresses, networks behind it that are not masqueraded, and subnets without
// an owner. Receivers drop sources that they do not know. An operator who allows a source there, by
// AllowedSources or a weaker SourceCheck, also allows it here.
func (t *Table) forged(src netip.Addr) *Peer {
	if t.spec.Check != CheckStrict {
		return nil
	}
	peer, found := t.routes.Lookup(src)
	if !found {
		peer, found = t.leftOut.Lookup(src)
	}
	if !found || t.local.Lookup(src) {
		return nil
	}
	for _, n := range t.spec.AllowedSources {
		if n.Contains(src) {
			return nil
		}
	}
	return peer
}

// forgedEvery is the least time between two log lines about forged sources, in nanoseconds. A pod of a former
// subnet keeps sending until somebody deletes it, and must not use up the rate of other lines.
const forgedEvery = int64(time.Minute)

// forged records an egress packet with a source that belongs to peer of. It logs at most one line in
// forgedEvery.
func (w *worker) forged(in *encap.Inner, of *Peer) {
	w.forgers.record(in.Src, w.now)
	if since := w.now - w.forgedLogged; since >= 0 && since < forgedEvery {
		w.forgedSkipped++
		return
	}
	n := w.forgedSkipped
	w.forgedLogged, w.forgedSkipped = w.now, 0
	w.engine.log.Warn("dropping packets of this host whose source is in another node's subnet; "+
		"weft doctor names likely senders",
		"source", in.Src, "destination", in.Dst, "subnet_of", of.spec.Name, "left_out", n)
}
