package podport

import (
	"net/netip"
	"time"
)

// Upgrade is the protocol that an attach asks for.
const Upgrade = "weft-descriptor"

// ByWeft is Request.By of the command weft attach.
const ByWeft = "weft attach"

// QueueLen is how many packets may wait in a pod's interface for weftd: as many as package podtun makes room
// for. A superpacket has 64 KB, and no socket buffer bounds them.
const QueueLen = 1000

// Bounds of a request.
const (
	// MaxAddresses is how many addresses a pod may have, and MaxPods how many pods a node.
	MaxAddresses = 16
	MaxPods      = 4096
	// MaxRequest bounds a request's JSON, in bytes.
	MaxRequest = 1 << 16
	// LeastMTU and MostMTU bound a pod's MTU, in bytes.
	LeastMTU, MostMTU = 576, 65535
)

// Key names one interface of one pod.
type Key struct {
	// ID is what the pod is known by: a container's id, or one that was made for a namespace.
	ID string `json:"id"`
	// Interface is the name that the interface was given in the pod.
	Interface string `json:"interface"`
}

// Request asks for a pod to be attached. It is also what has to be remembered of a pod.
type Request struct {
	Key
	// Name is what people call the pod; "" if only the ID is known.
	Name string `json:"name,omitempty"`
	// Netns says for people which namespace it is: a path, or a process.
	Netns string `json:"netns,omitempty"`
	// By is the program that attached it: "weft attach" or "weft-cni".
	By string `json:"by,omitempty"`
	// Addresses are the pod's own, of both families: the sources that it may use, and what is delivered to it.
	Addresses []netip.Addr `json:"addresses"`
	// MTU is that of the interface, in bytes.
	MTU int `json:"mtu"`
	// FollowsMTU says that the MTU is the overlay's, and changes with it. weftd decides: it is so if the two are
	// the same when the pod is attached.
	FollowsMTU bool `json:"followsMTU,omitempty"`
	// Reservation says where the addresses are reserved, for weftd to free them when the namespace is gone. It
	// is nil if somebody else does.
	Reservation *Reservation `json:"reservation,omitempty"`
}

// Reservation is where host-local keeps the files of a network.
type Reservation struct {
	// Dir is host-local's dataDir, an absolute path; Network is the network's name, a directory in it.
	Dir     string `json:"dir"`
	Network string `json:"network"`
}

// Answer is what comes of an attach.
type Answer struct {
	// Status is an HTTP status: 200, or as with an error of any other request.
	Status int    `json:"status"`
	Error  string `json:"error,omitempty"`
	// Pod is the pod as it is now, unless there is an Error.
	Pod *Pod `json:"pod,omitempty"`
}

// Pods has all pods that are attached directly, and what a new one needs to know.
type Pods struct {
	Pods []Pod `json:"pods"`
	Node Node  `json:"node"`
}

// Node is what a pod of this node needs to know.
type Node struct {
	// Attaches says that this weftd can attach pods now. If not, Why says what keeps it, with the remedy.
	Attaches bool   `json:"attaches"`
	Why      string `json:"why,omitempty"`
	// Subnets are the node's own, of which pods have their addresses, and Networks the overlay's; at most one of
	// each family.
	Subnets  []netip.Prefix `json:"subnets,omitempty"`
	Networks []netip.Prefix `json:"networks,omitempty"`
	// MTU is the largest inner packet, in bytes.
	MTU int `json:"mtu,omitempty"`
}

// States of a Pod.
const (
	// Attached pods have a port.
	Attached = "attached"
	// Waiting pods have a descriptor, and get their port as soon as there is a data plane.
	Waiting = "waiting"
	// Missing pods were attached to an earlier weftd, and their descriptor is lost: they have to be attached
	// again.
	Missing = "missing"
)

// Pod is a pod that is attached directly.
type Pod struct {
	Request
	// State is one of the above, and has been so since Since.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// Problem says what is wrong with it, and what to do; "" if nothing is.
	Problem string `json:"problem,omitempty"`
	// Note is what whoever has just attached it should know although nothing is wrong with it.
	Note string `json:"note,omitempty"`
	// Traffic is since it was attached or weftd began to carry packets anew.
	Traffic
	// LastSeen is when its last packet came or went; zero if there was none.
	LastSeen time.Time `json:"lastSeen,omitzero"`
	// Drops has only the reasons that occurred.
	Drops []Drop `json:"drops,omitempty"`
}

// Traffic is what was sent, and what was delivered, in packets as they would be on the wire.
type Traffic struct {
	SentPackets     uint64 `json:"sentPackets"`
	SentBytes       uint64 `json:"sentBytes"`
	ReceivedPackets uint64 `json:"receivedPackets"`
	ReceivedBytes   uint64 `json:"receivedBytes"`
}

// Drop says how many packets were dropped for one reason.
type Drop struct {
	Reason  string `json:"reason"`
	Packets uint64 `json:"packets"`
	// Admit names the setting that would let them through, if one would.
	Admit string `json:"admit,omitempty"`
}
