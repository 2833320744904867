package probe

import (
	"fmt"
)

// cause says what is likely wrong with a way, and what to look at; "" if nothing is. It is told from which of the peer's kernels answered since: that behind the
// overlay, and that on the underlay.
func (c *Core) cause(w *way) (likely, look string) {
	switch {
	case w.answers == No:
		return c.causeOfSilence(w)
	case w.lossy:
		return fmt.Sprintf("a link, a queue or a firewall on the way drops a part: %s", w.losses()),
			fmt.Sprintf("ip -s link and ethtool -S of the underlay's devices on both nodes, nft list ruleset for a limit; ping -f -c 1000 %v for the underlay alone", orNode(w))
	case w.mtu.hole:
		return "a device on the way carries less than the underlay's link, and its ICMP \"fragmentation needed\" does not come back",
			fmt.Sprintf("the MTU of what lies between the two nodes (ping -M do -s %d %v passes, larger ones do not); until it is mended, \"Backend\": {\"MTU\": %d} in the network config",
				max(0, int(w.mtu.passed)+c.about.Overhead-28), orNode(w), int(w.mtu.passed)+c.about.Overhead)
	}
	return "", ""
}

// Silence says what of a peer answers, or is heard, while it gives no answer.
type Silence uint8

// The kinds of silence. The first is that of a way that answers, or of which nothing is known.
const (
	NoSilence    Silence = iota
	Unsendable           // this host cannot send to it
	PortRefused          // its kernel says that nothing listens there
	KernelOnly           // its kernel answers through the overlay
	HeardOnly            // what it sends arrives
	UnderlayOnly         // its kernel answers on the underlay
	Nothing              // nothing of it answers
	silences             // how many there are
)

// OwnFirewall is why something could not be sent where a rule for OUTPUT dropped it: the kernel says EPERM then.
const OwnFirewall = "a firewall here drops it in OUTPUT (operation not permitted)"

// silence is what of the peer was heard since it fell silent.
func (w *way) silence() Silence {
	since := func(t moment) bool { return !t.IsZero() && t.After(w.silent) }
	switch {
	case w.answers != No:
		return NoSilence
	case w.unsent != "" && since(w.unsentAt):
		return Unsendable
	case since(w.stuckAt) && since(w.under): // its host would take it
		return Unsendable
	case since(w.refused):
		return PortRefused
	case since(w.echoed):
		return KernelOnly
	case since(w.heard):
		return HeardOnly
	case since(w.under):
		return UnderlayOnly
	}
	return Nothing
}

func (c *Core) causeOfSilence(w *way) (likely, look string) {
	there, on := orNode(w), c.about.onTheWire()
	switch s := w.silence(); {
	case s == Unsendable && w.unsent == OwnFirewall:
		return "this host cannot send to it: " + OwnFirewall, "the rules for OUTPUT on this host: nft list ruleset, iptables -S OUTPUT"
	case s == Unsendable && w.unsent == "":
		return fmt.Sprintf("this host's kernel refuses to send it %s, although it answers a ping: a firewall here drops that in OUTPUT", on.outer),
			"the rules for OUTPUT on this host: nft list ruleset, iptables -S OUTPUT"
	case s == Unsendable:
		return "this host cannot send to it: " + w.unsent, fmt.Sprintf("ip route get %v and ip route get %v on this host, and weft status", w.Addr, there)
	case s == PortRefused:
		return "its host carries packets, but its weftd does not run, or runs without probes", "systemctl status weftd and weft status on that node"
	case s == KernelOnly:
		return "its host carries packets, but its weftd does not answer: it is stopped or frozen, or that host's firewall drops what comes in by the overlay",
			fmt.Sprintf("on that node: systemctl status weftd, weft status, and the rules for INPUT (nft list ruleset, iptables -S INPUT) on udp dport %d", w.Port)
	case s >= HeardOnly && w.rejected.After(w.silent) && w.rejection.By == w.Under:
		return fmt.Sprintf("its host rejects %s: ICMP says %s, so that its weftd does not run, or a rule there rejects %s", on.outer, w.rejection.Says, on.what),
			fmt.Sprintf("on that node: systemctl status weftd, %s, and rules that reject %s (nft list ruleset, iptables -S)", on.holder, on.what)
	case s >= HeardOnly && w.rejected.After(w.silent):
		return fmt.Sprintf("%s does not get there: ICMP from %v says %s", on.outer, w.rejection.By, w.rejection.Says),
			fmt.Sprintf("the rules and routes of %v, and whether the peer's machine runs", w.rejection.By)
	case s == HeardOnly && c.about.Tunnelled():
		return fmt.Sprintf("what it sends arrives, and what this node sends does not: %s is dropped on the way to it, or by its host's firewall", on.outer),
			fmt.Sprintf("on that node: nft list ruleset, iptables -S INPUT, and whether tcpdump -ni any %s shows packets from this node", on.dump)
	case s == HeardOnly:
		return "what it sends arrives, and what this node sends does not", fmt.Sprintf("ip route get %v on this host, and the firewall of both", w.Addr)
	case s == UnderlayOnly && c.about.Daemon:
		return fmt.Sprintf("its host answers on the underlay, but nothing comes through the overlay: %s is dropped on the way or by a host's firewall, or its weftd is stopped or frozen", on.outer),
			fmt.Sprintf("on that node: systemctl status weftd and weft status; on both: nft list ruleset, iptables -S, and whether tcpdump -ni any %s shows packets in both directions", on.dump)
	case s == UnderlayOnly && c.about.Tunnelled():
		return fmt.Sprintf("its host answers on the underlay, but nothing comes through the overlay: %s is dropped on the way or by a host's firewall, or its device of the overlay is gone", on.outer),
			fmt.Sprintf("on both nodes: nft list ruleset, iptables -S, ip -d link show type %s, and whether tcpdump -ni any %s shows packets in both directions", on.device, on.dump)
	case s == UnderlayOnly:
		return "its host answers, but its weftd does not: it is stopped, frozen, or a firewall drops its port", fmt.Sprintf("on that node: systemctl status weftd, and the rules for INPUT on udp dport %d", w.Port)
	case w.Under.IsValid():
		return "its host is down, or the underlay does not lead there: it does not answer on the underlay either",
			fmt.Sprintf("ping %v, ip neigh show %v and ip route get %v on this host; whether that machine runs", w.Under, w.Under, w.Under)
	}
	return "its host is down, or the way there is broken", "weft peers on that node"
}

// common is the likely cause of what several peers have in common.
func (c *Core) common(ways []*way) (likely, look string) {
	likely, look = c.cause(ways[0])
	same := true
	for _, w := range ways {
		if l, _ := c.cause(w); l != likely {
			same = false
		}
	}
	silent := 0
	for _, w := range c.sorted {
		if w.answers != Yes {
			silent++
		}
	}
	switch {
	case silent == len(c.sorted) && ways[0].answers == No:
		if !same {
			likely = "not the same for each"
		}
		return "the fault is this node's own, since no peer answers: " + likely, "weft status here first, the underlay's link and this host's firewall; then " + look
	case same:
		return likely, look
	}
	return "not the same for each: weft peers --json has likely and look for every one", "weft peers"
}

// orNode is the peer's address on the underlay, or else that of the overlay.
func orNode(w *way) any {
	if w.Under.IsValid() {
		return w.Under
	}
	return w.Addr
}
