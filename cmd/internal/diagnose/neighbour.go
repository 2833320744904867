package diagnose

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// Neighbour is what the kernel and the link say of a next hop.
type Neighbour struct {
	At   netip.Addr
	Link string
	// Own says that At is an address of this host.
	Own bool
	// Entry is the MAC address to which this host sends, nil for none, and Pinned says that somebody set it.
	Entry  net.HardwareAddr
	Pinned bool
	// Asked says that the link was asked by ARP, and Answers has the MAC addresses of other hosts that answered.
	Asked   bool
	Answers []net.HardwareAddr
	// Err is why the kernel has no next hop.
	Err error
}

// unrouted is Err in words: the kernel has an error of its own for each type of route that blocks.
func (n Neighbour) unrouted() string {
	for err, words := range map[error]string{
		syscall.EINVAL: "a blackhole route", syscall.EACCES: "a prohibit route",
		syscall.EHOSTUNREACH: "an unreachable route",
	} {
		if errors.Is(n.Err, err) {
			return words
		}
	}
	return n.Err.Error()
}

// Misled reports whether this host sends to a MAC address that is not that of the host which answers.
func (n Neighbour) Misled() bool { return n.Pinned && len(n.Answers) > 0 && !n.answers(n.Entry) }

// Several reports whether more than one host has the address.
func (n Neighbour) Several() bool { return len(n.Answers) > 1 || n.Own && len(n.Answers) > 0 }

func (n Neighbour) answers(mac net.HardwareAddr) bool {
	return slices.ContainsFunc(n.Answers, func(m net.HardwareAddr) bool { return bytes.Equal(m, mac) })
}

// who lists the MAC addresses that answered.
func (n Neighbour) who() string {
	var all []string
	for _, m := range n.Answers {
		all = append(all, m.String())
	}
	return strings.Join(all, " and ")
}

// onLink names what the link itself showed of the next hop.
func (l *list) onLink() bool {
	n := l.p.Neighbour
	switch {
	case n.Err != nil:
		l.here("no-route", fmt.Sprintf("this host's routes have no way to %v (%s)", l.p.Under, n.unrouted()),
			"an error, or a route of type blackhole, prohibit or unreachable", "ip route get %v; ip route",
			l.p.Under).Observed = true
	case n.Misled():
		c := l.here("wrong-neighbour",
			fmt.Sprintf("this host sends to the MAC address %v for %v, which somebody pinned, "+
				"and %s answers for it", n.Entry, n.At, n.who()), "PERMANENT", "ip neigh show %v", n.At)
		c.Observed, c.Remedy = true, fmt.Sprintf("ip neigh del %v dev %s", n.At, n.Link)
	case n.Several():
		c := l.here("address-twice", fmt.Sprintf("more than one host has %v on %s: %s answer for it", n.At, n.Link,
			n.who()), "the address, on a host that is not to have it", "ip -br addr | grep -wF %v", n.At)
		c.Observed, c.Where = true, "on each host of this link"
	default:
		return false
	}
	return true
}
