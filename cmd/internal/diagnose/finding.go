package diagnose

import (
	"fmt"
	"net/netip"
	"strings"
)

// Layer is a part of the way, which rests on those before it.
type Layer string

// The layers, from the lowest.
const (
	Underlay  Layer = "underlay"
	Port      Layer = "port"
	DataPlane Layer = "data-plane"
	Daemon    Layer = "daemon"
	Bridge    Layer = "bridge"
	Pod       Layer = "pod"
)

// State is what became of a layer's questions.
type State string

// The states.
const (
	Answered State = "answered"
	Lossy    State = "lossy"   // some were answered
	Narrow   State = "narrow"  // small ones were, and large ones were lost without a word
	Refused  State = "refused" // an ICMP message came back
	Unsent   State = "unsent"  // this host cannot send
	Silent   State = "silent"
	NotAsked State = "not-asked"
)

// Said is an ICMP message, or an error of the asking host's kernel.
type Said struct {
	// By is who sent it; the zero Addr if it was the own kernel.
	By   netip.Addr
	Kind Kind
	// Text is the kernel's name of it.
	Text string
}

// Kind says what an ICMP message means, in the words of control.Unreachable.
type Kind string

// The kinds. KindOther is any that is none of these.
const (
	KindOther      Kind = ""
	KindPort       Kind = "port unreachable"
	KindProtocol   Kind = "protocol unreachable"
	KindHost       Kind = "host unreachable"
	KindNet        Kind = "network unreachable"
	KindProhibited Kind = "administratively prohibited"
	KindTooBig     Kind = "fragmentation needed"
)

// String is the message in words.
func (s *Said) String() string {
	what := map[Kind]string{
		KindPort:       "nothing listens there, or a rule rejects it",
		KindHost:       "the host is not reached",
		KindProtocol:   "nothing there takes the IP protocol",
		KindNet:        "there is no route",
		KindProhibited: "a rule forbids it",
		KindTooBig:     "the packet is too long",
	}[s.Kind]
	if what == "" || !s.By.IsValid() {
		return s.Who() + ": " + s.Text
	}
	return fmt.Sprintf("%s: %s (ICMP %s)", s.Who(), what, s.Kind)
}

// Who is who said it.
func (s *Said) Who() string {
	if !s.By.IsValid() {
		return "this host's kernel"
	}
	return s.By.String()
}

// Path is the way that was asked. A zero address is not known, or does not exist on this way.
type Path struct {
	// Peer is the node's name, and Here where the asking node's commands are run: "here", or "on " and its name.
	Peer, Here string
	// Local says that the pod is the asking node's own. Weft says that the peer runs weft, and Carried that
	// weft's data plane moves the packets of the asking node.
	Local, Weft, Carried bool
	// Under is the peer on the underlay, UnderFrom the asking node there, and Link its device.
	Under, UnderFrom netip.Addr
	Link             string
	// UDPPort is the overlay's, and Protocol its IP protocol if that has no ports; 0 for none.
	UDPPort  uint16
	Protocol uint8
	// From is the overlay address of the asking node, and Gateway and Pod are the peer's bridge and a pod on it.
	From, Gateway, Pod netip.Addr
	// Neighbour is the next hop to Under, the zero one if nobody looked.
	Neighbour Neighbour
	// Unused is why the asking node does not use the other as a peer; "" if it does. Controller says that a
	// controller has the network's own routers lead packets to pods.
	Unused     string
	Controller bool
}

// Fact is what was observed of the first layer that does not work.
type Fact struct {
	Layer Layer
	State State
	// To is the address that was asked, and Said what came back; nil for nothing.
	To   netip.Addr
	Said *Said
	// MTU is the largest packet that passed, for Narrow, and Lost one that was lost.
	MTU, Lost int
	// Heard says that packets of the peer arrived meanwhile. PortAnswers and UnderlayAnswers are of those
	// layers.
	Heard, PortAnswers, UnderlayAnswers bool
	// Probed says that weftd's probes observed it, which go through the overlay and tell no lower layer's loss
	// apart.
	Probed bool
}

// Code names a cause. Scripts and tests go by it.
type Code string

// Cause is a cause, with the command that tells.
type Cause struct {
	Code  Code   `json:"code"`
	Cause string `json:"cause"`
	// Command is what tells it from the others, Where on which host, and Tells what of its output means that it
	// is this one.
	Command string `json:"command"`
	Where   string `json:"where"`
	Tells   string `json:"tells"`
	// Observed says that the fact itself shows it, and that Command shows more of it.
	Observed bool `json:"observed,omitempty"`
	// Remedy is what ends an observed cause, in commands for Where; empty if that is not one command.
	Remedy string `json:"remedy,omitempty"`
}

// Finding is what is made of a fact.
type Finding struct {
	// Fact is what was observed, in words.
	Fact string
	// Causes has the one that was observed, or else those that are not excluded, the likeliest first.
	Causes []Cause
}

// Observed reports whether the cause was observed.
func (f Finding) Observed() bool { return len(f.Causes) > 0 && f.Causes[0].Observed }

// Codes are those of all causes.
func (f Finding) Codes() []string {
	var out []string
	for _, c := range f.Causes {
		out = append(out, string(c.Code))
	}
	return out
}

// Likely is the fact, with its cause or those that are not excluded.
func (f Finding) Likely() string {
	if f.Observed() {
		return f.Causes[0].Cause
	}
	var open []string
	for _, c := range f.Causes {
		open = append(open, c.Cause)
	}
	said := "not excluded: " + strings.Join(open, "; or ")
	if f.Fact != "" {
		said = f.Fact + "; " + said
	}
	return said
}

// Look is what to run, and where. Commands for one host stand together.
func (f Finding) Look() string {
	var places []string
	commands := map[string][]string{}
	for _, c := range f.Causes {
		if commands[c.Where] == nil {
			places = append(places, c.Where)
		}
		if !strings.Contains(strings.Join(commands[c.Where], "; "), c.Command) {
			commands[c.Where] = append(commands[c.Where], c.Command)
		}
	}
	for i, p := range places {
		places[i] = fmt.Sprintf("%s: %s", p, strings.Join(commands[p], "; "))
	}
	return strings.Join(places, "; ")
}
