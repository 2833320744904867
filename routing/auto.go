package routing

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"weft/lease"
	"weft/routing/hostrules"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
)

// typeAuto is vxlan in its records and on the wire, with plain routes to the peers that can be reached by
// them. Each node finds out for itself what it can do, and all are in one network. With the key Encrypt it is
// wireguard in place of vxlan.
const typeAuto = "auto"

func autoType() Type {
	t := vxlanType()
	t.Name, t.Settings = typeAuto, func(c lease.NetworkConfig, has func(string) bool) settings {
		if has(encryptName) {
			return &encrypted{wireGuard: *newWireGuard(c)}
		}
		v := newVXLAN(c)
		v.auto = true
		return &auto{vxlan: *v}
	}
	t.Help = map[string]string{
		encryptName: "`always`: WireGuard to every peer; `between-links`: to peers that are not on the underlay's " +
			"link",
	}
	return t
}

// encryptKey is the key with which the settings of type auto are others.
type encryptKey struct {
	Encrypt string `words:"always between-links" default:"" shared:"given"`
}

const encryptName = "Encrypt"

// auto are the settings without the key Encrypt. The key DirectRouting has no effect.
type auto struct {
	vxlan
	encryptKey
}

// encrypted are the settings with the key Encrypt: the records and the wire are wireguard's.
type encrypted struct {
	wireGuard
	encryptKey
}

// fault implements checker. No word means no: a network that is not to be encrypted has no such key, so that a
// text that was lost on the way is a fault.
func (e *encrypted) fault() error {
	if e.Encrypt == "" {
		return &lease.ConfigError{Key: backendPrefix + encryptName, Got: "empty",
			Want: fmt.Sprintf("one of %q, or no such key for a network that is not encrypted",
				[]string{encryptAlways, encryptBetweenLinks})}
	}
	return e.wireGuard.fault()
}

// open implements opener.
func (e *encrypted) open(ctx context.Context, c BackendConfig) (settings, driver, error) {
	w := e.wireGuard
	w.seals = seals{e.Encrypt, e.AllowedSources}
	return w.open(ctx, c)
}

// The words of the key Encrypt of type auto: every peer by WireGuard, or those in other links only.
const (
	encryptAlways       = "always"
	encryptBetweenLinks = "between-links"
)

// RecvPlain in a record's Recv says that the node takes packets of pods as they are from nodes on its own
// link.
const RecvPlain = "plain"

// seals are what type auto has beside wireguard.
type seals struct {
	encrypt string // the word; "" with type wireguard
	// allowed are sources beside the overlay's that may send to it in plain.
	allowed []netip.Prefix
}

// takesPlain says that the node's record may have RecvPlain: its routes are the host's, which away says they
// are not, and what peers are told is the address that the link itself has. Behind a router that translates
// addresses, a peer on the router's other side would send pods' packets to the router, in plain.
func (s seals) takesPlain(under underlay.Link, away bool) bool {
	return s.encrypt == encryptBetweenLinks && !away && under.Ext4 == under.Addr4 && under.Ext6 == under.Addr6
}

// otherAddr is the first address of the way's family that the record has beside the advertised one: the
// node's link has that, and the advertised one is somebody else's.
func (w *way) otherAddr() (a netip.Addr) {
	for _, a := range w.r.Weft.Addrs {
		if a.Unmap().Is6() == w.six {
			return a
		}
	}
	return netip.Addr{}
}

// plainWay decides that packets for a subnet go as they are, if they may: the network's configuration here
// and there has to say so, and the peer has to be on the underlay's own link. The reason says why not, or
// why.
func (w *wireGuard) plainWay(x *way, s situation) {
	switch {
	case w.encrypt != encryptBetweenLinks:
	case x.r.Weft == nil || !slices.Contains(x.r.Weft.Recv, RecvPlain):
		x.Reason = "it takes nothing in plain: its network config says so, or it is not weft's"
	case !w.takesPlain(s.under, false): // if it is away, no way is known
		x.Reason = fmt.Sprintf("this node takes nothing in plain: peers are told %v, and %s has %v",
			valid(s.under.Ext4, s.under.Ext6), s.under.Name, s.under.Local())
	case x.otherAddr().IsValid():
		x.Reason = fmt.Sprintf("%v is not its own address, which is %v", x.public, x.otherAddr())
	case !x.public.IsValid() || !x.local.IsValid():
		x.Reason = fmt.Sprintf("it has no %s, or this node has none", x.publicKey())
	default:
		if x.choose(s, true, false); x.How == HowRoute {
			x.Via, x.Reason = x.public, fmt.Sprintf("%v is on %s itself, so that nothing is encrypted", x.public,
				s.under.Name)
		}
	}
}

// seal says by which links packets come and go encrypted, and what comes and goes in plain for all that; nil
// if nothing is sealed. under is the underlay's link, "" if that is in another namespace.
func (s seals) seal(under string, reached []Reached) *hostrules.Seal {
	if s.encrypt == "" {
		return nil
	}
	x := &hostrules.Seal{Devices: []string{kernel.WireGuardName(false), kernel.WireGuardName(true)},
		Underlay: under, Admitted: s.allowed}
	for _, r := range reached {
		if r.How == HowRoute {
			x.Plain, x.Hosts = append(x.Plain, r.Subnet.Masked()), append(x.Hosts, r.Via)
		}
	}
	slices.SortFunc(x.Plain, netip.Prefix.Compare)
	x.Hosts = unique(x.Hosts)
	return x
}
