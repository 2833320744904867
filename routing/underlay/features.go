package underlay

import (
	"fmt"
	"slices"
	"strings"

	"weft/tunnel/port"
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
		"tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6", "rx-gro", "rx-udp-gro-forwarding",
		"rx-gro-list",
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

// Devices are the underlay's link and those under it, in the order in which a frame meets them: behind a link
// that is made of others, such as a bond or a bridge, come all of these.
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

// lacking is the first device that does not cut what the feature cuts, over IPv4 or IPv6; "" if all do. A
// device that does not fill in the outer checksum is handed no superpacket that needs one: the kernel cuts it
// in front of the device.
func (d Devices) lacking(f Feature, six bool) string {
	for _, dev := range d.List {
		sums := dev.Features.Has(ChecksumAny) || dev.Features.Has(Checksum4) && !six ||
			dev.Features.Has(Checksum6) && six
		if !dev.Features.Has(f) || !sums {
			return dev.Name
		}
	}
	return ""
}

// Outlet decides how superpackets leave by these devices over IPv4 or IPv6: whole where all devices cut
// tunnels, else as runs. The kernel cuts a whole one in front of a device that does not, datagram by
// datagram, which costs up to five times as much where the device cuts UDP. Where it cuts neither, both
// cost the same, but GRO joins only runs at the receiver: their datagrams have a checksum and are no
// tunnel's to the kernel.
//
// whole and runs say what the port can do at all: send superpackets whole, and runs in one send.
func (d Devices) Outlet(six, whole, runs bool) port.OutletChoice {
	tunnels := TunnelSegmentation
	if six { // over IPv6 a datagram has a checksum
		tunnels = TunnelCsumSegmentation
	}
	noTunnels, noUDP := d.lacking(tunnels, six), d.lacking(UDPSegmentation, six)
	switch {
	case !whole && !runs:
		return inRuns("they cannot leave whole, and udp-gso is not in use")
	case !whole:
		return inRuns("they cannot leave whole")
	case !runs:
		return uncut("udp-gso is not in use, so a run would be a send for each of its packets")
	case len(d.List) == 0:
		return inRuns("what the device cuts is not known")
	case noTunnels == "":
		return uncut(d.last() + " cuts tunnels")
	case noUDP == "":
		return inRuns(noTunnels + " cuts UDP and no tunnels")
	case noUDP == noTunnels:
		return inRuns(noUDP + " cuts neither tunnels nor UDP")
	default:
		return inRuns(fmt.Sprintf("%s cuts no tunnels and %s no UDP", noTunnels, noUDP))
	}
}

func uncut(why string) port.OutletChoice {
	return port.OutletChoice{Outlet: port.OutletWhole, Why: why}
}

func inRuns(why string) port.OutletChoice {
	return port.OutletChoice{Outlet: port.OutletRuns, Why: why}
}

// last is the name of the device that is nearest to the wire.
func (d Devices) last() string { return d.List[len(d.List)-1].Name }
