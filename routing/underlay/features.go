package underlay

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"weft/tunnel/port"
)

// These are ethtool's names of the features that matter to the data plane (net/ethtool/common.c,
// netdev_features_strings).
const (
	TunnelSegmentation     = "tx-udp_tnl-segmentation"      // cuts UDP tunnels' superpackets without checksum
	TunnelCsumSegmentation = "tx-udp_tnl-csum-segmentation" // and with one
	UDPSegmentation        = "tx-udp-segmentation"          // cuts runs of datagrams
	ChecksumAny            = "tx-checksum-ip-generic"       // fills in checksums, of any protocol
	Checksum4              = "tx-checksum-ipv4"             // of TCP and UDP over IPv4
	Checksum6              = "tx-checksum-ipv6"             // of TCP and UDP over IPv6
	GRO                    = "rx-gro"                       // joins what arrives
	UDPGROForwarding       = "rx-udp-gro-forwarding"        // also datagrams for sockets that nobody here has
	GROList                = "rx-gro-list"                  // the same, into lists of packets
)

// Features are those that are on, of the ones that matter.
type Features []string

// Has reports whether a feature is on.
func (fs Features) Has(f string) bool { return slices.Contains(fs, f) }

// featuresOf are those of active that matter.
func featuresOf(active map[string]bool) Features {
	fs := Features{}
	for _, f := range []string{TunnelSegmentation, TunnelCsumSegmentation, UDPSegmentation, ChecksumAny,
		Checksum4, Checksum6, GRO, UDPGROForwarding, GROList} {
		if active[f] {
			fs = append(fs, f)
		}
	}
	return fs
}

// Device is a device that datagrams leave by, and what it does for them now.
type Device struct {
	Index    int
	Name     string
	Features Features
}

// Devices are the underlay's link and those under it, in the order in which a frame meets them: behind a link
// that is made of others, such as a bond or a bridge, come all of these.
type Devices struct {
	List []Device
	// Unknown says why features could not be read; then List is empty.
	Unknown string
}

// Equal reports whether both are the same devices with the same features.
func (d Devices) Equal(e Devices) bool { return reflect.DeepEqual(d, e) }

// String is what each device has, for the log.
func (d Devices) String() string {
	if d.Unknown != "" {
		return "unknown: " + d.Unknown
	}
	var l []string
	for _, dev := range d.List {
		l = append(l, dev.Name+": "+strings.Join(dev.Features, " "))
	}
	return strings.Join(l, "; ")
}

// lacking is the first device that does not cut what the feature cuts, over IPv4 or IPv6; "" if all do. A
// device that does not fill in the outer checksum is handed no superpacket that needs one: the kernel cuts it
// in front of the device.
func (d Devices) lacking(f string, six bool) string {
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
