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
func (n Neighbour) Misled() bool {
	return n.Pinned && len(n.Answers) > 0 && !slices.ContainsFunc(n.Answers, func(m net.HardwareAddr) bool {
		return bytes.Equal(m, n.Entry)
	})
}

// Several reports whether more than one host has the address.
func (n Neighbour) Several() bool { return len(n.Answers) > 1 || n.Own && len(n.Answers) > 0 }

// fault is what the kernel and the link themselves showed to be wrong; "" for nothing.
func (n Neighbour) fault() Code {
	switch {
	case n.Err != nil:
		return "no-route"
	case n.Misled():
		return "wrong-neighbour"
	case n.Several():
		return "address-twice"
	}
	return ""
}

// shown adds to an observed cause what was seen of it.
func (n Neighbour) shown(c Cause) Cause {
	switch {
	case c.Code == "wrong-neighbour":
		c.Cause = fmt.Sprintf("this host sends to the MAC address %v for %v, which somebody pinned, and %v "+
			"answers for it", n.Entry, n.At, n.Answers[0])
		c.Remedy = fmt.Sprintf("ip neigh del %v dev %s", n.At, n.Link)
	case c.Code == "address-twice":
		var who []string
		if n.Own {
			who = []string{"this host"}
		}
		for _, m := range n.Answers {
			who = append(who, m.String())
		}
		c.Cause += ": " + strings.Join(who, " and ")
		c.Where = "on each host of this link"
	}
	return c
}
