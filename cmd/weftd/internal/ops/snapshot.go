package ops

import (
	"time"

	"weft/lease"
	"weft/routing"
	"weft/routing/hostrules"
	"weft/routing/probe"
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
	// Probes is what is known of the ways to peers, by peer; none if nobody is asked.
	Probes []probe.State
	// Encrypted is what devices of WireGuard know of peers, each at most once; nil for another backend, and if no metric shall be about a
	// single peer.
	Encrypted []EncryptedPeer
	// Pods are those that are attached directly.
	Pods Pods
	// EachPod are these one by one; nil if no metric shall be about a single pod.
	EachPod []PodInterface
	// Strangers is how many outer sources that are no peer's were seen lately.
	Strangers int
	// DeviceDropped is how many packets the kernel dropped on their way into the
	// overlay's device.
	DeviceDropped uint64

	// KernelMoves says that weft moves no packets itself, so that what its data plane counts is not shown; Devices are then what the kernel
	// counted.
	KernelMoves bool
	Devices     []routing.DeviceTraffic

	// Infos are the peers' records. No metric has a label peer if Summary is set.
	Infos   []PeerInfo
	Summary bool

	named []namedPeer // of Peers; made when it is first needed
	infos []namedInfo // Infos with names that no other has; the same
	each  []string    // the labels of EachPod; the same
}
