package control

import (
	"net/netip"
	"time"

	"weft/cmd/internal/podport"
	"weft/lease"
	"weft/routing"
	"weft/routing/probe"
	"weft/tunnel"
)

// Snapshot is what weftd knows of itself at one moment, in the types of the parts that know it. Status,
// peers, metrics, readiness and notes follow from it alone. Each part is read once, and reading changes
// nothing.
type Snapshot struct {
	At                    time.Time
	Version, Name, NodeID string
	Started               time.Time
	// Waiting says what weftd waits for before it has an overlay; "" once it has one.
	Waiting   string
	Source    Source
	Store     Store
	Lease     lease.Status
	Cache     Cache
	Namespace *Namespace
	Custody   *Custody
	// Missing is what weftd goes on without, and Certificates what is wrong with files by which the store is
	// reached.
	Missing, Certificates []string
	// Pods count those that are attached directly; nil if there are none.
	Pods *PodCounts

	// The fields below are zero while weftd waits.

	Backend routing.Status
	// RecordType is the BackendType that this node publishes, and Port the overlay's.
	RecordType string
	Port       int
	// Set is the one in force, with the records that are rejected by now.
	Set    lease.Set
	Config Config
	// Compared says that Config was compared with that of the source.
	Compared bool
	// StoreCut says why the overlay cuts this host off from the store, SubnetFile why that file is not
	// written, and Former which bridges have addresses of a former subnet; "" for none.
	StoreCut, SubnetFile, Former string
	// NeedsRules says that pods have no network without the host's rules.
	NeedsRules bool
	// Probing says that peers are asked whether they answer. Alone says that none of them does.
	Probing, Alone bool
	Probes         []probe.State
	ProbeFaults    []string
	Devices        []routing.DeviceTraffic
	// Plane is nil where the kernel moves the packets.
	Plane *Plane

	// Records are the peers', with PartPeers, and Encrypted what WireGuard knows of them, by subnet.
	Records   []lease.Record
	Encrypted map[netip.Prefix]Encryption
	// EachPod are the pods that are attached directly, with PartPods.
	EachPod []podport.Pod
}

// Source is the store of the leases, in words.
type Source struct {
	// Name is its name in messages; "" means store. Where says where the network configuration is.
	Name, Where string
	// Assigns says that the cluster gives the subnet and takes it back only by deleting the node: pods keep
	// their network while the store is silent.
	Assigns bool
}

// Plane is what the data plane has counted.
type Plane struct {
	Stats   tunnel.Stats
	Workers []tunnel.WorkerStats
	// Strangers are outer sources that are no peer's, and Forgers inner ones of this host that are other
	// nodes'.
	Strangers, Forgers []tunnel.Stranger
	// Dropped is how many packets the kernel dropped on their way into the overlay's device.
	Dropped uint64
	// Peers has each peer's counters, with PartPeers.
	Peers []tunnel.PeerStats
}

// Parts are those of a Snapshot that cost more to read than the rest.
type Parts uint8

// PartTraffic are the counters, PartPeers what is known of each peer, and PartPods of each pod.
const (
	PartTraffic Parts = 1 << iota
	PartPeers
	PartPods
)

// Has reports whether p has all of q.
func (p Parts) Has(q Parts) bool { return p&q == q }

// InUse reports whether there is an overlay.
func (s *Snapshot) InUse() bool { return s.Waiting == "" }
