package lease

import (
	"fmt"
	"net/netip"
	"time"
)

// Self identifies this node when ownership is decided.
type Self struct {
	// Node is our identity.
	Node string
	// State names our state directory; "" if we have none.
	State string
	// PublicIP and PublicIPv6 are what we publish; zero where absent.
	PublicIP, PublicIPv6 netip.Addr
}

// Ownership is the relation of a record to this node.
type Ownership uint8

// The answers. The zero value is a bug.
const (
	_ Ownership = iota
	// Ours carries our identity, at whatever address: see Recognises.
	Ours
	// Adoptable carries no identity and our address: a flannel ran here before us.
	Adoptable
	// Rival carries another identity and our address: one of two nodes is wrong.
	Rival
	// Foreign is any other node's.
	Foreign
)

func (o Ownership) String() string {
	switch o {
	case Ours:
		return "ours"
	case Adoptable:
		return "adoptable"
	case Rival:
		return "rival"
	case Foreign:
		return "foreign"
	}
	return "invalid"
}

// Owns returns the relation of a record with these attributes to this node. Identity comes before address:
// our record stays ours when our address changes.
func (s Self) Owns(a Attrs) Ownership {
	same4 := s.PublicIP.IsValid() && s.PublicIP == a.PublicIP
	same6 := s.PublicIPv6.IsValid() && s.PublicIPv6 == a.PublicIPv6
	switch {
	case a.Node() == s.Node && s.Node != "":
		return Ours
	case a.Node() != "" && (same4 || same6):
		return Rival
	case a.Node() == "" && (same4 || same6 && !s.PublicIP.IsValid()):
		return Adoptable
	}
	return Foreign
}

// Recognises reports whether a record with our identity was written by this process's own installation: it
// has our address, in a family that it has, and our state directory or none, as in records of older versions.
// Any other was written by a copy of this machine, or before this machine moved.
func (s Self) Recognises(a Attrs) bool {
	return s.At(a) && (a.State() == s.State || a.State() == "")
}

// At reports whether a has our address in one of the families.
func (s Self) At(a Attrs) bool {
	return s.PublicIP.IsValid() && s.PublicIP == a.PublicIP || s.PublicIPv6.IsValid() &&
		s.PublicIPv6 == a.PublicIPv6
}

// RivalError means that another node's record has our address. It lasts until that record expires or is
// released, or until one of the two nodes gets another address.
type RivalError struct {
	Ours, Theirs string // identities
	// TheirName is what people call the other one; "" if unknown.
	TheirName string
	Subnets   Subnets
	Address   netip.Addr
	// Remaining is the life left to their record; 0 if it does not expire or is not known.
	Remaining time.Duration
}

func (e *RivalError) Error() string {
	life := "does not expire by itself"
	if e.Remaining > 0 {
		life = "expires in " + e.Remaining.Round(time.Second).String()
	}
	return fmt.Sprintf("our address %s is that of %s, which holds %s; we are node %q: their record %s; if "+
		"that node is gone: weft lease release %s",
		e.Address, DescribeOwner(e.TheirName, e.Theirs, netip.Addr{}), e.Subnets, e.Ours, life, e.Subnets)
}

// TakenError names the new owner of the subnet that was ours.
type TakenError struct {
	Subnets Subnets
	// By is the other owner's identity, "" if it has none; Address is where it is reached.
	By      string
	Address netip.Addr
	// ByName is what people call it; "" if unknown.
	ByName string
	// Their is what it holds, which overlaps ours.
	Their Subnets
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("%s is lost: %s now holds %s", e.Subnets, DescribeOwner(e.ByName, e.By, e.Address),
		e.Their)
}

// Address returns where the owner is reached: PublicIP, or PublicIPv6 without it.
func (a Attrs) Address() netip.Addr {
	if a.PublicIP.IsValid() {
		return a.PublicIP
	}
	return a.PublicIPv6
}

// IPv6OnlyError says why a network without IPv4 is refused.
type IPv6OnlyError struct {
	// Keys are the records without our identity.
	Keys []string
}

func (e *IPv6OnlyError) Error() string {
	return fmt.Sprintf("EnableIPv4 false: %d records without identity are in the store (first %s), so flannel "+
		"nodes read it, and flannel reads the key of a node without IPv4 as 0.0.0.0/0: remove those nodes, or "+
		"enable IPv4", len(e.Keys), e.Keys[0])
}

// CheckIPv6Only refuses a network without IPv4 while any record without our
// identity exists; the error is an *IPv6OnlyError.
func CheckIPv6Only(cfg NetworkConfig, records []Record) error {
	if cfg.EnableIPv4 {
		return nil
	}
	var keys []string
	for _, r := range records {
		if r.Node() == "" {
			keys = append(keys, r.Key())
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return &IPv6OnlyError{Keys: keys}
}
