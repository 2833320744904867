package ops

import (
	"time"

	"weft/lease"
	"weft/routing"
	"weft/routing/hostrules"
	"weft/tunnel"
)

// Snapshot has all values from which the metrics are made, read for one request.
type Snapshot struct {
	// Version and Node identify the process.
	Version, Node string
	Ready         bool
	// LeaseHeld says that the store has confirmed our lease; LeaseExpires is its end,
	// zero for a reservation.
	LeaseHeld    bool
	LeaseExpires time.Time
	// StoreUp says that the store answers; StoreSeen is when it last did.
	StoreUp       bool
	StoreSeen     time.Time
	StoreRevision int64
	// ConfigChanged says that the store's network configuration is not the one in use.
	ConfigChanged bool
	// ConfigFault says that it cannot be used. ConfigLastGood says that weftd could not use it when it
	// started, and runs on the last good one.
	ConfigFault, ConfigLastGood bool
	// NoPeer says why no other node can be a peer; nil if one can, or if there is no other node.
	NoPeer []NoPeer
	// Alarm says that records that are gone from the store still count.
	Alarm bool
	// Rejected counts records by the reason why they are not accepted.
	Rejected map[lease.RejectReason]int
	// CacheSaved is when the last good set was written, zero if never.
	CacheSaved time.Time
	// Backend is the zero Status before there is one.
	Backend routing.Status
	// Rules are the host's traffic rules, zero before there are any.
	Rules   hostrules.Status
	Tunnel  tunnel.Stats
	Workers []tunnel.WorkerStats
	Peers   []tunnel.PeerStats
	// Strangers is how many outer sources that are no peer's were seen lately.
	Strangers int
	// DeviceDropped is how many packets the kernel dropped on their way into the
	// overlay's device.
	DeviceDropped uint64

	named []namedPeer // of Peers; made when it is first needed
}

// namedPeer is a peer under a name that no other has.
type namedPeer struct {
	*tunnel.PeerStats
	name string
}

// namedPeers returns Peers, each with a name that no other has: two records with one node id must not
// make the whole request fail. The names are made once for a page. One goroutine at a time may call it.
func (s *Snapshot) namedPeers() []namedPeer {
	if s.named != nil {
		return s.named
	}
	s.named = make([]namedPeer, 0, len(s.Peers))
	seen := make(map[string]bool, len(s.Peers))
	for i := range s.Peers {
		p := &s.Peers[i]
		name := p.Name
		if seen[name] {
			name += " " + p.Addr.String()
		}
		if !seen[name] {
			seen[name] = true
			s.named = append(s.named, namedPeer{p, name})
		}
	}
	return s.named
}
