package ping

import (
	"net/netip"
	"time"

	"weft/cmd/internal/diagnose"
)

// SchemaVersion is the version of Report's JSON. A field that goes, or means something else, makes another
// one.
const SchemaVersion = 1

// Verdict is what is said of a layer. Unknown says that it could not be asked, or that nobody would answer
// either way.
type Verdict string

// The verdicts.
const (
	OK      Verdict = "ok"
	Note    Verdict = "note"
	Unknown Verdict = "unknown"
	Broken  Verdict = "broken"
)

// Report is what weft ping --json prints.
type Report struct {
	SchemaVersion int       `json:"schema_version"`
	At            time.Time `json:"at"`
	// Target is what was asked for, Node the name of the node that it is or is on, and ID its identity if it has
	// one.
	Target string `json:"target"`
	Node   string `json:"node"`
	ID     string `json:"nodeID,omitempty"`
	// Healthy says that no layer is broken.
	Healthy bool `json:"healthy"`
	// Source says where the addresses are from. Notes say what this host cannot do, and why.
	Source string   `json:"source"`
	Notes  []string `json:"notes,omitempty"`
	Routes []Result `json:"ways"`
	// Took is how long all of it took, in nanoseconds.
	Took time.Duration `json:"tookNanoseconds"`
}

// Result is what was found of the way in one family.
type Result struct {
	// Family is 4 or 6: that of the overlay's addresses.
	Family int `json:"family"`
	// Backend is the type, and Path what moves the packets here: portable, socket, raw or kernel.
	Backend string `json:"backend"`
	Path    string `json:"path,omitempty"`
	Layers  []Row  `json:"layers"`
	// Broken is the first broken layer, "" for none. Alike are the layers that may be broken in its place:
	// nothing that can be asked from here tells them apart.
	Broken diagnose.Layer   `json:"firstBroken,omitempty"`
	Alike  []diagnose.Layer `json:"indistinguishable,omitempty"`
	// Causes has the one that was observed of what is broken, or else all that are not excluded, the likeliest
	// first.
	Causes []diagnose.Cause `json:"causes,omitempty"`
}

// Row is one layer.
type Row struct {
	Layer   diagnose.Layer `json:"layer"`
	Verdict Verdict        `json:"verdict"`
	State   diagnose.State `json:"state"`
	// To is the address that was asked, with its UDP Port where there is one, and By how: icmp, udp or ipip.
	To   netip.Addr `json:"to,omitzero"`
	Port uint16     `json:"port,omitempty"`
	By   string     `json:"by,omitempty"`
	// Sent and Answered count questions. Loss is the part of them without an answer, from 0 to 1; nil where that
	// says nothing.
	Sent     int      `json:"sent"`
	Answered int      `json:"answered"`
	Loss     *float64 `json:"loss,omitempty"`
	// RTT is nil if nothing was answered.
	RTT *RTT `json:"rtt,omitempty"`
	// MTU is the largest packet that passed, headers of IP included, in bytes: an outer one on the underlay and
	// at the port, and else an inner one. It is 0 if none was looked for, or none of those passed. MTUUnfinished
	// says that larger ones may pass too. Expected is what the links at both ends carry.
	MTU           int  `json:"mtu,omitempty"`
	MTUUnfinished bool `json:"mtuUnfinished,omitempty"`
	Expected      int  `json:"expectedMTU,omitempty"`
	// Detail is what is odd, in a sentence; "" if nothing is.
	Detail string `json:"says,omitempty"`
}

// RTT has round trips in nanoseconds.
type RTT struct {
	Min    time.Duration `json:"minNanoseconds"`
	Median time.Duration `json:"medianNanoseconds"`
	Max    time.Duration `json:"maxNanoseconds"`
}
