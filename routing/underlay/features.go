package underlay

import (
	"fmt"
	"slices"
	"strings"

	"weft/tunnel"
)

// Feature is something that a device does for the packets that it sends or receives.
type Feature uint8

// The features that matter to the data plane.
const (
	TunnelSegmentation     Feature = iota // cuts UDP tunnels' superpackets without an outer checksum
	TunnelCsumSegmentation                // and with one
	UDPSegmentation                       // cuts runs of datagrams
	ChecksumAny                           // fills in checksums, of any protocol
	Checksum4                             // of TCP and UDP over IPv4
	Checksum6                             // of TCP and UDP over IPv6
	GRO                                   // joins what arrives
	UDPGROForwarding                      // joins datagrams for sockets that nobody in this namespace has, too
	GROList                               // the same, into lists of packets
	NumFeatures                           // how many there are
)

// String is ethtool's name of the feature (net/ethtool/common.c, netdev_features_strings).
func (f Feature) String() string {
	names := [NumFeatures]string{
		"tx-udp_tnl-segmentation", "tx-udp_tnl-csum-segmentation", "tx-udp-segmentation",
		"tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6", "rx-gro", "rx-udp-gro-forwarding", "rx-gro-list",
	}
	if f < NumFeatures {
		return names[f]
	}
	return fmt.Sprintf("feature(%d)", uint8(f))
}

// FeatureSet is a set of features.
type FeatureSet uint16

// With is the set and fs.
func (s FeatureSet) With(fs ...Feature) FeatureSet {
	for _, f := range fs {
		s |= 1 << f
	}
	return s
}

// Has says whether f is in the set.
func (s FeatureSet) Has(f Feature) bool { return s&(1<<f) != 0 }

// Names are ethtool's, of those in the set.
func (s FeatureSet) Names() []string {
	names := []string{}
	for f := range NumFeatures {
		if s.Has(f) {
			names = append(names, f.String())
		}
	}
	return names
}

// featuresOf is the set of those names that matter.
func featuresOf(active map[string]bool) (s FeatureSet) {
	for f := range NumFeatures {
		if active[f.String()] {
			s = s.With(f)
		}
	}
	return s
}

// Device is a device that datagrams leave by, and what it does for them now.
type Device struct {
	Index    int
	Name     string
	Features FeatureSet
}

// Devices are the underlay's link and those under it, in the order in which a frame meets them: behind a link that is made of
// others, such as a bond or a bridge, come all of these.
type Devices struct {
	List []Device
	// Unknown says why features could not be read; then List is empty.
	Unknown string
}

// Equal reports whether both are the same devices with the same features.
func (d Devices) Equal(e Devices) bool { return d.Unknown == e.Unknown && slices.Equal(d.List, e.List) }

// String is what each device has, for the log.
func (d Devices) String() string {
	if d.Unknown != "" {
		return "unknown: " + d.Unknown
	}
	var l []string
	for _, dev := range d.List {
		l = append(l, dev.Name+": "+strings.Join(dev.Features.Names(), " "))
	}
	return strings.Join(l, "; ")
}

// lacking is the first device that does not cut what the feature cuts, over IPv4 or IPv6; "" if all do. A device that does not
// fill in the outer checksum is handed no superpacket that needs one: the kernel cuts it in front of the device.
func (d Devices) lacking(f Feature, six bool) string {
	for _, dev := range d.List {
		sums := dev.Features.Has(ChecksumAny) || dev.Features.Has(Checksum4) && !six || dev.Features.Has(Checksum6) && six
		if !dev.Features.Has(f) || !sums {
			return dev.Name
		}
	}
	return ""
}

// Outlets decides how superpackets leave by these devices over IPv4 or IPv6: whole where the devices cut tunnels, as runs
// where they cut UDP. Where they cut neither, the kernel cuts either in front of the device, and the port finds out which costs less.
// What a device says is no proof, since nothing shows what is behind it: whole is tried against runs even where it cuts tunnels.
//
// The receiver's work is in no price. So what spares it is trusted: what crosses whole need not be joined, and of what is cut
// on the way GRO joins only runs, whose datagrams have a checksum and are no tunnel's to the kernel.
//
// whole and runs say what the port can do at all: send superpackets whole, and runs in one send.
func (d Devices) Outlets(six, whole, runs bool) tunnel.Outlets {
	tunnels := TunnelSegmentation
	if six { // over IPv6 a datagram has a checksum
		tunnels = TunnelCsumSegmentation
	}
	noTunnels, noUDP := d.lacking(tunnels, six), d.lacking(UDPSegmentation, six)
	switch {
	case !whole && !runs:
		return tunnel.Outlets{First: tunnel.OutletRuns, Why: "they cannot leave whole, and udp-gso is not in use"}
	case !whole:
		return tunnel.Outlets{First: tunnel.OutletRuns, Why: "they cannot leave whole"}
	case !runs:
		return tunnel.Outlets{First: tunnel.OutletWhole, Why: "udp-gso is not in use, so a run would be a send for each of its packets"}
	case len(d.List) == 0:
		return tunnel.Outlets{First: tunnel.OutletWhole, Try: true, Trust: true, Why: "what the device cuts is not known"}
	case noTunnels == "":
		return tunnel.Outlets{First: tunnel.OutletWhole, Try: true, Trust: true, Why: d.last() + " cuts tunnels"}
	case noUDP == "":
		return tunnel.Outlets{First: tunnel.OutletRuns, Why: noTunnels + " cuts UDP and no tunnels"}
	case noUDP == noTunnels:
		return tunnel.Outlets{First: tunnel.OutletRuns, Try: true, Trust: true, Why: noUDP + " cuts neither tunnels nor UDP: the cheaper one is taken"}
	default:
		return tunnel.Outlets{First: tunnel.OutletRuns, Try: true, Trust: true, Why: fmt.Sprintf("%s cuts no tunnels and %s no UDP: the cheaper one is taken", noTunnels, noUDP)}
	}
}

// last is the name of the device that is nearest to the wire.
func (d Devices) last() string { return d.List[len(d.List)-1].Name }
