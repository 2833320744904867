package tunnel

import (
	"net/netip"
	"time"

	"weft/encap"
)

// forged returns the peer whose subnet src is in, although the packet comes from this host; nil for a source
// that may be this host's. That is every address outside other nodes' leases: the host's own, those of
// networks behind it that are not masqueraded, and those of a subnet that nobody has. Receivers drop what is
// none of these, and whoever allows it there, by AllowedSources or a weaker SourceCheck, allows it here.
func (t *Table) forged(src netip.Addr) *Peer {
	if t.spec.Check != CheckStrict {
		return nil
	}
	peer, found := t.routes.Lookup(src)
	if !found {
		peer, found = t.left.Lookup(src)
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

// forgedEvery is the least time between two lines about forged sources, in nanoseconds: a pod of a former
// subnet goes on sending until somebody deletes it, and must not keep what else there is to say from being
// said.
const forgedEvery = int64(time.Minute)

// forged notes a packet with a source that is of's, and says so now and then.
func (w *worker) forged(in *encap.Inner, of *Peer) {
	w.forgers.record(in.Src, w.now)
	if since := w.now - w.forgedSaid; since >= 0 && since < forgedEvery {
		w.forgedLeft++
		return
	}
	n := w.forgedLeft
	w.forgedSaid, w.forgedLeft = w.now, 0
	w.engine.log.Warn("packets that this host sends into the overlay have a source of another node's subnet, and "+
		"are dropped: weft doctor says what may send them",
		"source", in.Src, "destination", in.Dst, "subnet_of", of.spec.Name, "left_out", n)
}
