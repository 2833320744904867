package underlay

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"weft/routing/internal/kernel"
)

// ErrNone says that no interface passed; the message lists every one that
// was tried with the reason why it was refused.
var ErrNone = errors.New("no underlay interface")

// Link is the interface that carries the datagrams between nodes. It is
// comparable.
type Link struct {
	// Name is the interface's, Index its number, MTU its largest IP packet in bytes.
	Name       string
	Index, MTU int
	// Addr4 and Addr6 are addresses of the link, which the tunnel binds to; the zero Addr if
	// that family is not used.
	Addr4, Addr6 netip.Addr
	// Ext4 and Ext6 are what the lease record advertises: --public-ip and --public-ipv6, else
	// the local address. They differ from the local ones behind NAT.
	Ext4, Ext6 netip.Addr
}

// Local lists the local addresses that are set, IPv4 first.
func (u Link) Local() []netip.Addr {
	return slices.DeleteFunc([]netip.Addr{u.Addr4, u.Addr6}, func(a netip.Addr) bool { return !a.IsValid() })
}

// Outer6 reports whether datagrams to most peers have an IPv6 header.
func (u Link) Outer6() bool { return !u.Addr4.IsValid() }

// Unadvertised lists the local addresses that the lease record does not name as
// PublicIP or PublicIPv6. Datagrams leave with them, so the record names them in
// Weft.Addrs, or peers on the same side of the NAT would refuse our packets.
func (u Link) Unadvertised() []netip.Addr {
	return slices.DeleteFunc(u.Local(), func(a netip.Addr) bool { return a == u.Ext4 || a == u.Ext6 })
}

// Options are flanneld's flags for the choice. Interfaces are tried
// first, in order, then Regexes, then CanReach; the first that passes is taken.
// With none of the three it is the interface that has the public address, else the one of the
// default route with the lowest metric.
type Options struct {
	// Interfaces are names or addresses (--iface).
	Interfaces []string
	// Regexes are unanchored, matched with addresses and, if none matches, with names
	// (--iface-regex).
	Regexes []string
	// CanReach is an address; the interface of the route to it is taken (--iface-can-reach).
	CanReach netip.Addr
	// PublicIP and PublicIPv6 are advertised in place of the local addresses. They
	// need not be local: behind NAT they are the router's.
	PublicIP, PublicIPv6 netip.Addr
	// IPv4 and IPv6 are the outer families to look for. An interface with all of them is
	// preferred; AllFamilies refuses any other.
	IPv4, IPv6, AllFamilies bool
	// Overlay are the overlay's own networks: an address within is no underlay's.
	Overlay []netip.Prefix
}

// listing is what the choice is made from: a snapshot of the kernel's state.
type listing struct {
	links    []kernel.Device
	addrs    []kernel.AddrInfo
	defaults []kernel.DefaultRoute
	reach    kernel.ReachInfo
}

// explicit reports whether the caller named interfaces.
func (o Options) explicit() bool {
	return len(o.Interfaces)+len(o.Regexes) > 0 || o.CanReach.IsValid()
}

// check finds faults in the options themselves, all at once.
func (o Options) check() ([]*regexp.Regexp, error) {
	var faults []error
	var res []*regexp.Regexp
	for _, s := range o.Regexes {
		re, err := regexp.Compile(s)
		if err != nil {
			faults = append(faults, fmt.Errorf("--iface-regex %q: %w", s, err))
			continue
		}
		res = append(res, re)
	}
	if !o.IPv4 && !o.IPv6 {
		faults = append(faults, errors.New("neither IPv4 nor IPv6 is enabled: enable one in the network config"))
	}
	if a := o.PublicIP; a.IsValid() && !a.Is4() {
		faults = append(faults, fmt.Errorf("--public-ip %v: not an IPv4 address; use --public-ipv6", a))
	}
	if a := o.PublicIPv6; a.IsValid() && (!a.Is6() || a.Is4In6() || a.Zone() != "") {
		faults = append(faults, fmt.Errorf("--public-ipv6 %v: not an IPv6 address without a zone", a))
	}
	return res, errors.Join(faults...)
}

// candidate is a link to try and, if the user named one, its address.
type candidate struct {
	why   string // the option that proposed it, for the error
	index int
	addr  netip.Addr
	fault string // set if there is no such link or address
}

// choose is the choice itself. It is pure.
func choose(l listing, o Options) (Link, error) {
	regexes, err := o.check()
	if err != nil {
		return Link{}, err
	}
	cands := l.candidates(o, regexes)
	// First an interface with an address of every family is looked for, then one that lacks a family.
	var refused []string
	for _, all := range []bool{true, false} {
		if all && !(o.IPv4 && o.IPv6) || !all && o.AllFamilies && o.IPv4 && o.IPv6 {
			continue
		}
		refused = refused[:0]
		for _, c := range cands {
			u, why := l.try(c, o, all)
			if why == "" {
				return u, nil
			}
			if line := fmt.Sprintf("%s: %s", c.why, why); !slices.Contains(refused, line) {
				refused = append(refused, line)
			}
		}
	}
	if len(refused) == 0 {
		refused = append(refused, "there is no default route")
	}
	return Link{}, fmt.Errorf("%w: %s; name an interface with --iface NAME or --iface ADDRESS, or give it an "+
		"address",
		ErrNone, strings.Join(refused, "; "))
}

// try checks one candidate and fills the Link, or says why not.
func (l listing) try(c candidate, o Options, all bool) (Link, string) {
	if c.fault != "" {
		return Link{}, c.fault
	}
	link, ok := l.link(c.index)
	switch {
	case !ok:
		return Link{}, fmt.Sprintf("interface number %d does not exist", c.index)
	case link.Alias == kernel.Alias:
		return Link{}, fmt.Sprintf("%s is the overlay's own device", link.Name)
	case !link.Up:
		return Link{}, fmt.Sprintf("%s is down: set it up", link.Name)
	case link.MTU == 0:
		return Link{}, fmt.Sprintf("%s has MTU 0", link.Name)
	}
	u := Link{Name: link.Name, Index: link.Index, MTU: link.MTU}
	var why4, why6 string
	if o.IPv4 {
		u.Addr4, why4 = l.pick(c, false, o)
	}
	if o.IPv6 {
		u.Addr6, why6 = l.pick(c, true, o)
	}
	lacks4, lacks6 := o.IPv4 && !u.Addr4.IsValid(), o.IPv6 && !u.Addr6.IsValid()
	if all && (lacks4 || lacks6) || !u.Addr4.IsValid() && !u.Addr6.IsValid() {
		return Link{}, link.Name + " " + strings.Join(nonEmpty(why4, why6), ", ")
	}
	u.Ext4, u.Ext6 = u.Addr4, u.Addr6
	if u.Addr4.IsValid() && o.PublicIP.IsValid() {
		u.Ext4 = o.PublicIP
	}
	if u.Addr6.IsValid() && o.PublicIPv6.IsValid() {
		u.Ext6 = o.PublicIPv6
	}
	return u, ""
}

func (l listing) link(index int) (kernel.Device, bool) {
	i := slices.IndexFunc(l.links, func(d kernel.Device) bool { return d.Index == index })
	if i < 0 {
		return kernel.Device{}, false
	}
	return l.links[i], true
}

func nonEmpty(s ...string) []string {
	return slices.DeleteFunc(s, func(s string) bool { return s == "" })
}
