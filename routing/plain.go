package routing

import (
	"context"
	"fmt"
	"net/netip"

	"weft/lease"
	"weft/routing/underlay"
	"weft/tunnel"
)

// plainOptions has the keys of every type. With these types the kernel judges senders, so that the keys about senders
// are only checked.
type plainOptions struct {
	// MTU is the largest outer packet, in bytes; 0 for that of the underlay link.
	MTU int
}

// plainKeys declares them.
func plainKeys(o *plainOptions, ipv6 bool) []Key {
	return append(sourceKeys(new(tunnel.SourceCheck), new([]netip.Prefix)), mtuKey(&o.MTU, 0, ipv6))
}

// plainSettings are those of a network whose type has no keys of its own.
type plainSettings struct {
	plainOptions
	ipv6  bool // the network has it
	facts Facts
	pure  func(plainOptions) backendType
}

// plainType makes such a type out of its pure part.
func plainType(name string, f Facts, pure func(plainOptions) backendType) Type {
	return Type{Name: name, Settings: func(c lease.NetworkConfig) Settings {
		return &plainSettings{ipv6: c.EnableIPv6, facts: f, pure: pure}
	}}
}

// Keys implements Settings.
func (s *plainSettings) Keys() []Key { return plainKeys(&s.plainOptions, s.ipv6) }

// Facts implements Settings.
func (s *plainSettings) Facts() Facts { return s.facts }

// MTU implements Settings.
func (s *plainSettings) MTU(u underlay.Link) (int, error) {
	return innerMTU(s.pure(s.plainOptions), u)
}

// Open implements Settings.
func (s *plainSettings) Open(_ context.Context, c BackendConfig) (Backend, error) {
	return openKernel(c, s.pure(s.plainOptions), nil)
}

// plainSizes are those of packets without a tunnel.
func plainSizes(link, most int, ipv6 bool) (mtus, error) {
	mtu := link
	if most > 0 {
		mtu = min(mtu, most)
	}
	least := minMTU4
	if ipv6 {
		least = minMTU6
	}
	if mtu < least {
		return mtus{mtu, mtu}, fmt.Errorf("MTU %d is below the %d that the network needs: raise that of the underlay by %d", mtu, least, least-mtu)
	}
	return mtus{mtu, mtu}, nil
}
