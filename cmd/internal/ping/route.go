package ping

import (
	"net/netip"
	"time"

	"weft/cmd/internal/diagnose"
)

// Route is what is to be asked in one family. A zero address means that the layer does not exist on this
// route.
type Route struct {
	diagnose.Path
	Six bool
	// Backend is the type, and DataPath what moves the packets of this node: portable, socket, raw or kernel.
	Backend, DataPath string
	// Direct says that packets go without a tunnel, and AnswersPort that the node's data plane answers questions
	// at the overlay's port.
	Direct, AnswersPort bool
	// Overlay is the node's overlay address.
	Overlay netip.Addr
	// MTU is the largest inner packet, and UnderMTU the largest outer one, that both ends carry, in bytes; 0 if
	// that is not known.
	MTU, UnderMTU int
	// Not says why layers cannot be asked.
	Not map[diagnose.Layer]string
}

const kernelPath = "kernel"

// layers are those of the way, the lowest first.
func (w Route) layers() []diagnose.Layer {
	var out []diagnose.Layer
	for _, l := range []struct {
		layer diagnose.Layer
		there bool
	}{
		{diagnose.Underlay, !w.Local && w.Under.IsValid()},
		{diagnose.Port, !w.Local && (w.UDPPort != 0 || w.Protocol != 0)},
		{diagnose.DataPlane, !w.Local && !w.Direct}, {diagnose.Daemon, !w.Local},
		{diagnose.Bridge, w.Gateway.IsValid()}, {diagnose.Pod, w.Pod.IsValid()},
	} {
		if l.there {
			out = append(out, l.layer)
		}
	}
	return out
}

// question is what a layer is asked, without the sizes.
func (w Route) question(l diagnose.Layer) Question {
	q := Question{Layer: l, By: byICMP}
	switch l {
	case diagnose.Underlay:
		q.To, q.From = w.Under, w.UnderFrom
	case diagnose.Port:
		q.To, q.From, q.Port, q.Probe, q.By = w.Under, w.UnderFrom, w.UDPPort, w.AnswersPort, byUDP
		if w.Protocol != 0 {
			q.By = byIPIP
		}
	case diagnose.DataPlane:
		q.To, q.From = w.Overlay, w.From
	case diagnose.Daemon:
		q.To, q.From, q.By = w.Overlay, w.From, byUDP
	case diagnose.Bridge:
		q.To, q.From = w.Gateway, w.From
	case diagnose.Pod:
		q.To, q.From = w.Pod, w.From
	}
	if w.Local {
		q.From = netip.Addr{} // the kernel knows best
	}
	return q
}

// expected is the largest packet that the layer should carry, 0 if it is not asked for that: a daemon is
// behind the same way as the data plane.
func (w Route) expected(l diagnose.Layer) int {
	switch l {
	case diagnose.Underlay:
		return w.UnderMTU
	case diagnose.Port:
		if w.AnswersPort {
			return w.UnderMTU
		}
		return 0
	case diagnose.Daemon:
		return 0
	case diagnose.Bridge, diagnose.Pod:
		if w.Local {
			return 0
		}
	case diagnose.DataPlane:
	}
	return w.MTU
}

const byICMP, byUDP, byIPIP = "icmp", "udp", "ipip"

// Question is a series of questions to one layer.
type Question struct {
	Layer    diagnose.Layer
	By       string
	From, To netip.Addr
	Port     uint16
	// Probe says that what is sent to Port asks for an answer; else it is an empty datagram, to which only ICMP
	// says something.
	Probe bool
	// Sizes has the length of each question as an IP packet, in bytes; 0 for the shortest. None is fragmented.
	Sizes             []int
	Interval, Timeout time.Duration
}

// Outcome is what became of a Question.
type Outcome struct {
	// RTTs has an element for each question: the round trip, or 0 for no answer.
	RTTs []time.Duration
	// Said is the first ICMP message that came back, or what this host's kernel said in its place; nil for none.
	// One about a packet that is too long is in TooBig only.
	Said   *diagnose.Said
	TooBig *diagnose.Said
	// Cannot says why this host could not ask at all: a right that is missing, or a weftd that does not answer.
	// NoAnswers is the same for what it could ask, but not hear: only Said counts then.
	Cannot, NoAnswers string
}

// answered counts answers.
func (o Outcome) answered() (n int) {
	for _, d := range o.RTTs {
		if d > 0 {
			n++
		}
	}
	return n
}
