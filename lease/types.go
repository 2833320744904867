package lease

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"time"
)

// TTL is how long a record lives in the store without renewal. flannel fixes it
// at 24 hours, and so every reader of the store assumes it.
const TTL = 24 * time.Hour

// DefaultBackend is the backend's type where none is named: in a network config without Backend, and in
// a record without BackendType.
const DefaultBackend = "udp"

// BackendName is a record's BackendType in words, as it stands there.
func BackendName(backendType string) string { return cmp.Or(backendType, DefaultBackend) }

// Subnets is what one node owns: one prefix per address family. The zero prefix
// means that the family is absent. Subnets is comparable and is the identity of
// a record in the store, where it is also the key.
type Subnets struct {
	V4, V6 netip.Prefix
}

// Attrs is the value of a record: the way to reach the owner of a subnet. The JSON form is flannel's, field
// by field, with our own object last.
type Attrs struct {
	// PublicIP is where the node's tunnel is reached over IPv4. It is 0.0.0.0 in the
	// store, and the zero Addr here, for a node without IPv4.
	PublicIP netip.Addr
	// PublicIPv6 is the same over IPv6; the zero Addr is null in the store.
	PublicIPv6 netip.Addr
	// BackendType is "" for udp and alloc, as flannel writes it.
	BackendType string
	// BackendData and BackendV6Data are the backend's own JSON, nil when absent.
	BackendData, BackendV6Data json.RawMessage
	// Weft is our object; nil on a record written by flannel.
	Weft *Weft
}

// Weft is the one object that weft adds to a record. flannel ignores it.
type Weft struct {
	// Node is the identity of the owner (see Identity).
	Node string
	// Name is what people call the node: its host's name, unless it was told otherwise; "" if unsaid.
	// It decides nothing, and several nodes may say the same one.
	Name string `json:",omitempty"`
	// State names the state directory of the process that wrote the record (see LoadState); ""
	// if it has none. It tells a node that was started again from a copy of it.
	State string `json:",omitempty"`
	// Recv names what the node parses on every path: "gso", "pcsum", "pack", "probe", "runs", and "plain" if it
	// encrypts between links and takes what its own link's nodes send as it is. It is never withdrawn while the
	// node runs.
	Recv []string `json:",omitempty"`
	// MTU is the largest inner packet, in bytes, that the node's overlay carries; 0 if unsaid.
	MTU int `json:",omitempty"`
	// Probe is the UDP port of the node's overlay addresses on which it answers whether it is reached; 0 if it
	// does not.
	Probe int `json:",omitempty"`
	// Addrs are further outer source addresses of the node.
	Addrs []netip.Addr `json:",omitempty"`
}

// Record is one subnet with its owner, as read from the store.
type Record struct {
	Subnets
	Attrs
	// Expires is when the store will drop the record. The zero time means that it
	// never does (Reservation) or that the store has not said yet.
	Expires time.Time
	// Reservation marks a record without TTL: it is kept without TTL on update and never renewed.
	Reservation bool
	// Revision is the store's modification revision, for compare-and-swap; 0 in a store
	// whose records have no life of their own, which is Kubernetes.
	Revision int64
	// Created tells which of two records of a store is the older: the revision that made its key in etcd, the
	// creation time of its Node object in Unix seconds in Kubernetes. Renewals keep it; 0 if unknown.
	Created int64
	// Kube is the Node object that the record was read from; nil in etcd. It is shared
	// between copies and never changed.
	Kube *KubeNode
}

// Since is when the record was first there, as the store counts.
func (r *Record) Since() int64 { return cmp.Or(r.Created, r.Revision) }

// KubeNode names a Node object of Kubernetes.
type KubeNode struct {
	Name string
	// UID is another for each object that ever had the name.
	UID string
}

// RecordName is what the record is called where it is refused: the Node object's name, else the key.
func (r Record) RecordName() string {
	if r.Kube != nil {
		return r.Kube.Name
	}
	return r.Key()
}

// Set is the complete input of a backend: our own record, and every peer that passed the checks. It is
// immutable once published; readers may keep it.
type Set struct {
	// Config is the network configuration that the set was checked against.
	Config NetworkConfig
	// Own is our record. Its Subnets are zero until a lease is held.
	Own Record
	// Peers are sorted by V4, then V6 prefix.
	Peers []Record
	// Rejected are records that were read and not accepted, with the reason.
	Rejected []Rejected
	// Alarm is non-empty when removals are not believed: it says why, for status and log.
	Alarm string
}

// Rejected is a record in the store that is not used.
type Rejected struct {
	// Key is the record's name: in Kubernetes that of the Node object; in etcd as
	// Subnets.Key writes it if it names a subnet, and the whole key if it lies outside of
	// where records are.
	Key    string       `json:"key"`
	Reason RejectReason `json:"reason"`
	// Detail names what was found, in words.
	Detail string `json:"detail,omitempty"`
	// Revision is the record's modification revision; 0 if the store did not say.
	Revision int64 `json:"-"`
}
