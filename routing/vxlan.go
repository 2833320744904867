package routing

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"

	"weft/encap"
	"weft/lease"
	"weft/tunnel"
)

// DefaultVXLANPort is what the kernel takes if the config names none, as flannel does.
const DefaultVXLANPort = 8472

// VXLANOptions is the Backend object of a network config of type vxlan.
type VXLANOptions struct {
	// VNI is the network's number, default 1; Port every node's UDP port, default DefaultVXLANPort.
	VNI  uint32
	Port uint16
	// MTU is the largest outer packet with its IP header, in bytes; 0 for that of the underlay link.
	MTU int
	// GBP is the group policy extension, Learning that the kernel learns senders. Both are
	// attributes of the device.
	GBP, Learning bool
	// Auto says that the type is auto: the records and the wire are vxlan's, and DirectRouting is on.
	Auto bool
	// DirectRouting has peers on the underlay's own link reached by plain routes.
	DirectRouting bool
	// MACPrefix are the first two bytes of our MACs; nil for any.
	MACPrefix *[2]byte
	// Userspace says who carries the packets: "auto" is the kernel if it can, "always" and "never" are
	// the data plane.
	Userspace string
	// Path, AutoPath and Off are the data plane's, as in UDPOptions.
	Path     tunnel.Path
	AutoPath bool
	Off      tunnel.OffloadSet
	// SourceCheck is how far senders are verified, default strict; AllowedSources are inner
	// sources that any peer may use besides its own, masked.
	SourceCheck    tunnel.SourceCheck
	AllowedSources []netip.Prefix
}

// The longest VNIs whose device names fit: IFNAMSIZ of if.h leaves 15 bytes.
const (
	maxVNI  = 9_999_999 // flannel.9999999
	maxVNI6 = 9_999     // flannel-v6.9999
)

// parseVXLAN reads the Backend object of c. The error joins one *lease.ConfigError for
// each fault.
func parseVXLAN(c lease.NetworkConfig) (VXLANOptions, error) {
	k := readBackend(c)
	most := maxVNI
	if c.EnableIPv6 {
		most = maxVNI6
	}
	outer6 := c.EnableIPv6
	o := VXLANOptions{
		VNI:      uint32(k.number("VNI", 1, 0, most)),
		Port:     uint16(k.number("Port", 0, 0, 65535)),
		MTU:      k.mtu(encap.FormatVXLAN.Overhead(outer6), c.EnableIPv6),
		GBP:      k.boolean("GBP"),
		Learning: k.boolean("Learning"), DirectRouting: k.boolean("DirectRouting"),
		Userspace: k.word("Userspace", "auto", "always", "never"),
	}
	if o.Port == 0 {
		o.Port = DefaultVXLANPort
	}
	if s := k.text("MacPrefix"); s != "" {
		p, err := parseMACPrefix(s)
		if err != nil {
			k.fault("MacPrefix", `two bytes as "0E-2A": `+err.Error())
		}
		o.MACPrefix = &p
	}
	o.Path, o.AutoPath, o.Off = k.dataPlane()
	o.SourceCheck, o.AllowedSources = k.sources()
	// With type auto the nodes see for themselves what each can do, all in one network.
	if o.Auto = c.BackendType == typeAuto; o.Auto {
		o.DirectRouting = true
	}
	if err := k.err(); err != nil {
		return VXLANOptions{}, err
	}
	return o, nil
}

// vtepName is the device's name in a family, flannel's.
func vtepName(six bool, vni uint32) string {
	if six {
		return fmt.Sprintf("flannel-v6.%d", vni)
	}
	return fmt.Sprintf("flannel.%d", vni)
}

// vtepMAC is the address that a node of that identity gives to its device: the same after every
// boot, another for each node, family and VNI, locally administered and no group's.
func vtepMAC(node string, six bool, vni uint32, prefix *[2]byte) MAC {
	h := hmac.New(sha256.New, []byte(node))
	_, _ = fmt.Fprintf(h, "weft vtep 1 %s", vtepName(six, vni)) // a hash takes everything
	m := MAC(h.Sum(nil))
	m[0] = m[0]&^1 | 2
	if prefix != nil {
		m[0], m[1] = prefix[0], prefix[1]
	}
	return m
}

// vtepData is BackendData, byte for byte flannel's.
func vtepData(vni uint32, m MAC) json.RawMessage {
	return fmt.Appendf(nil, `{"VNI":%d,"VtepMAC":"%s"}`, vni, m)
}

// parseVTEPData reads a peer's BackendData. Early flannel wrote no VNI, which is any.
func parseVTEPData(b json.RawMessage, vni uint32) (MAC, error) {
	if !given(b) {
		return MAC{}, fmt.Errorf("it publishes none")
	}
	var v struct {
		VNI     *uint32
		VtepMAC string
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return MAC{}, fmt.Errorf("it publishes %s, which is not what vxlan has", shorten(b))
	}
	if v.VNI != nil && *v.VNI != vni {
		return MAC{}, fmt.Errorf("its VNI is %d, this network's is %d", *v.VNI, vni)
	}
	return ParseMAC(v.VtepMAC)
}

// shorten quotes what a record says, for a message.
func shorten(b []byte) string {
	const most = 60
	return fmt.Sprintf("%.*q", most, b)
}

// vtepMTU is the largest inner packet of one family's device, in bytes: with an IPv6 outer
// header 70 bytes less than outside, with IPv4's 50.
func vtepMTU(link, most int, six bool) (int, error) {
	outer := link
	if most > 0 {
		outer = min(outer, most)
	}
	mtu, least := encap.InnerMTU(encap.FormatVXLAN, outer, six), minMTU4-encap.FormatVXLAN.Overhead(false)
	if six {
		least = minMTU6
	}
	if mtu < least {
		return mtu, fmt.Errorf("MTU %d of %s is below the %d that it needs: raise that of the underlay, now %d, by %d",
			mtu, familyName(six), least, outer, least-mtu)
	}
	return mtu, nil
}

func familyName(six bool) string {
	if six {
		return "IPv6"
	}
	return "IPv4"
}
