package routing

import (
	"fmt"

	"weft/encap"
	"weft/routing/internal/plane"
	"weft/routing/underlay"
	"weft/tunnel"
)

// The settings that types share, and the constants of their tags: the ranges of MTU begin at minMTU4, and with IPv6
// at minMTU6 and what the type adds to a packet.

// common are the keys of every network, whatever its type is.
type common struct {
	// NoMasquerade are destinations to which packets go with the sender's own address although --ip-masq is on.
	NoMasquerade prefixes `want:"a list of networks as [\"192.0.2.0/24\"]"`
	// Probe says that nodes ask each other whether they answer.
	Probe bool `default:"true"`
}

// senders are the keys about senders, which every type has; where the kernel judges senders, they are only checked.
type senders struct {
	// SourceCheck is how far senders are verified.
	SourceCheck string `words:"strict outer off"`
	// AllowedSources are inner sources that any peer may use besides its own.
	AllowedSources prefixes `want:"a list of networks as [\"192.0.2.0/24\"]"`
}

// check is SourceCheck for the data plane.
func (s senders) check() tunnel.SourceCheck {
	c, _ := tunnel.ParseSourceCheck(s.SourceCheck) // one of the words, or none
	return c
}

// dataPlane are the keys about how weft's own data plane moves packets.
type dataPlane struct {
	// Path is how packets are moved; auto is the best that kernel, underlay and capabilities allow.
	Path            string   `words:"auto raw socket portable"`
	DisableOffloads offloads `want:"a list of offloads as [\"tun-tso\"]"`
	// RxUDPGROForwarding says what is done with that feature of the underlay's device.
	RxUDPGROForwarding string `words:"auto on off"`
}

// options are those of the data plane, with a format and a port.
func (d dataPlane) options(f encap.Format, port uint16) plane.Options {
	o := plane.Options{Format: f, Port: port, Off: d.DisableOffloads.set, Forwarding: d.RxUDPGROForwarding}
	o.Path, o.Auto, _ = resolvePath(d.Path) // one of the words, or none
	return o
}

// plain are the keys of a type that has no others, and whose packets have no tunnel.
type plain struct {
	senders
	// MTU is the largest packet, in bytes; 0 for that of the underlay link.
	MTU int `range:"576..65535" range6:"1280..65535"`
}

func (p plain) sizes(u underlay.Link) (mtus, error) {
	mtu := outerMTU(u.MTU, p.MTU)
	if mtu < minMTU4 {
		return mtus{mtu, mtu}, fmt.Errorf("MTU %d is below the %d that the network needs: raise that of the underlay by %d", mtu, minMTU4, minMTU4-mtu)
	}
	return mtus{mtu, mtu}, nil
}
