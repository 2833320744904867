package routing

import (
	"encoding/json"
	"errors"
	"fmt"

	"weft/encap"
	"weft/routing/internal/kernel"
	"weft/routing/internal/plane"
	"weft/routing/underlay"
	"weft/tunnel"
)

// The settings that types share, and the constants of their tags: the ranges of MTU begin at minMTU4, and
// with IPv6 at minMTU6 and what the type adds to a packet.

// common are the keys of every network, whatever its type is.
type common struct {
	// NoMasquerade are destinations to which packets go with the sender's own address although --ip-masq is on.
	NoMasquerade prefixes `want:"a list of networks as [\"192.0.2.0/24\"]"`
	// Probe says that nodes ask each other whether they answer.
	Probe bool `default:"true"`
}

// senders are the keys about senders, which every type has; where the kernel judges senders, they are only
// checked.
type senders struct {
	// SourceCheck is how far senders are verified.
	SourceCheck string `words:"strict outer off"`
	// AllowedSources are inner sources that any peer may use besides its own.
	AllowedSources prefixes `want:"a list of networks as [\"192.0.2.0/24\"]"`
}

// publish is that of most types: a peer is known by its address alone.
func (senders) publish() (data, v6data json.RawMessage) { return nil, nil }

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
func (d dataPlane) options(f encap.Format, port uint16) *plane.Options {
	o := plane.Options{Format: f, Port: port, Off: d.DisableOffloads.set, Forwarding: d.RxUDPGROForwarding}
	o.Path, o.Auto = resolvePath(d.Path)
	return &o
}

// plain are the keys of a type that has no others, and whose packets have no tunnel.
type plain struct {
	senders
	// MTU is the largest packet, in bytes; 0 for that of the underlay link.
	MTU int `range:"576..65535" range6:"1280..65535"`
}

func (p plain) sizes(u underlay.Link) (mtus, error) {
	mtu := outerMTU(u.MTU, p.MTU)
	return mtus{mtu, mtu}, checkMTU(mtu, minMTU4, mtu)
}

// minMTU6 is the least MTU of a link that carries IPv6 (RFC 8200 section 5), and
// minMTU4 what every IPv4 host must take (RFC 791 section 3.2). In bytes.
const minMTU6, minMTU4 = encap.MinMTU6, encap.MinMTU4

// outerMTU is the largest datagram with its IP header, in bytes, of which the config says how large it may be
// at the most; 0 if it does not.
func outerMTU(linkMTU, most int) int {
	if most > 0 {
		return min(linkMTU, most)
	}
	return linkMTU
}

// checkMTU returns why the overlay cannot have an MTU: it is below least, where datagrams have outer bytes.
func checkMTU(mtu, least, outer int) error {
	if mtu >= least {
		return nil
	}
	six := ""
	if least == minMTU6 {
		six = fmt.Sprintf(" (IPv6 needs %d inside)", minMTU6)
	}
	return fmt.Errorf("MTU %d of the overlay is below the %d that it needs: raise the MTU of the underlay, "+
		"now %d, by %d%s",
		mtu, least, outer, least-mtu, six)
}

// The words of Userspace. With userAuto it is the kernel that carries the packets, if it can.
const (
	userAuto   = "auto"
	userAlways = "always"
	userNever  = "never"
)

// userSpace is the key of a type that the kernel carries or, where it cannot, this program.
type userSpace struct {
	// Userspace says who carries the packets: userAuto, userAlways or userNever.
	Userspace string `words:"auto always never"`

	user bool   // it is this program
	why  string // for want of what; "" if the config says so
}

// facts are f with what the word makes of it: doing is what userNever forbids to do without the kernel.
func (s userSpace) facts(f Facts, doing string) Facts {
	f.Carrier = CarrierEither
	switch s.Userspace {
	case userAlways:
		f.Carrier, f.Feature = CarrierWeft, nil
	case userNever:
		f.Carrier = CarrierKernel
		f.Feature.Required = `"Userspace":"never" forbids to ` + doing + " without"
	}
	return f
}

// decide says whether this program is to do what the kernel could by devices of a kind. there says that
// there is one, which proves that the kernel can.
func (s *userSpace) decide(c BackendConfig, kind string, there bool) error {
	if s.Userspace == userAlways || s.Userspace != userNever && c.Outside != nil {
		s.user = true // between two namespaces the kernel's device would send where the TUN is
		return nil
	}
	if s.Userspace == userNever || there {
		return nil
	}
	err := c.Kernel.Probe(kind)
	if errors.Is(err, kernel.NoDriver(kind)) {
		s.user, s.why = true, err.Error()
		c.Logger.Warn("packets are carried in user space", "cause", err)
		return nil
	}
	return err
}
