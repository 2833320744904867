package routing

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"weft/encap"
)

// VTEP is a vxlan device as far as we keep it. It is comparable.
type VTEP struct {
	Name  string
	Alias string
	MAC   MAC
	MTU   int // bytes
	Up    bool
	// Index is the link's number; 0 if there is none yet. It is not compared.
	Index int

	// What a device has for life. Under is the number of the underlay link, Local the
	// outer source address.
	VNI           uint32
	Port          uint16
	Under         int
	Local         netip.Addr
	GBP, Learning bool
	// Other lists attributes that we leave at the kernel's defaults and that differ; "" if none does.
	Other string
}

// vtepPlan is what to do about one device.
type vtepPlan struct {
	// Create says that there is none, Recreate why the one that there is has to go first.
	Create   bool
	Recreate string
	// Set are the attributes to change: "mac", "mtu", "alias", "up".
	Set []string
	// Adopted says that it was flannel's.
	Adopted bool
}

// planVTEP compares a device in full. have is nil if there is none. It is pure.
func planVTEP(have *VTEP, want VTEP) vtepPlan {
	if have == nil {
		return vtepPlan{Create: true}
	}
	var differ []string
	check := func(what string, have, want any) {
		if have != want {
			differ = append(differ, fmt.Sprintf("%s %v, want %v", what, have, want))
		}
	}
	check("VNI", have.VNI, want.VNI)
	check("port", have.Port, want.Port)
	check("underlay link", have.Under, want.Under)
	check("local address", have.Local, want.Local)
	check("GBP", have.GBP, want.GBP)
	check("learning", have.Learning, want.Learning)
	if have.Other != "" {
		differ = append(differ, have.Other)
	}
	if len(differ) > 0 {
		return vtepPlan{Recreate: strings.Join(differ, "; ")}
	}
	var p vtepPlan
	for _, s := range []struct {
		name    string
		differs bool
	}{
		{"mac", have.MAC != want.MAC}, {"mtu", have.MTU != want.MTU},
		{"alias", have.Alias != want.Alias}, {"up", have.Up != want.Up},
	} {
		if s.differs {
			p.Set = append(p.Set, s.name)
		}
	}
	p.Adopted = have.Alias == "" && want.Alias != ""
	return p
}

// len is how many kernel calls the plan makes, about.
func (p vtepPlan) len() int {
	if p.Create || p.Recreate != "" {
		return 1
	}
	return len(p.Set)
}

// vtepStrange says why a device of the name that we want is not ours to take, and what to do;
// "" if it is. Ours and flannel's have an address in the network, or none yet. It is pure.
func vtepStrange(d VTEP, addrs []netip.Prefix, networks []netip.Prefix) string {
	if d.Alias != "" && d.Alias != Alias {
		return fmt.Sprintf("link %s has the alias %q, so it is another program's: choose another VNI, or ip link del %s", d.Name, d.Alias, d.Name)
	}
	var others []string
	for _, a := range addrs {
		if a.Addr().IsLinkLocalUnicast() {
			continue
		}
		if slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a.Addr()) }) {
			return ""
		}
		others = append(others, a.String())
	}
	if len(others) == 0 {
		return ""
	}
	return fmt.Sprintf("link %s has the address %s of another network: choose another VNI, or ip link del %s if nothing uses it",
		d.Name, strings.Join(others, ", "), d.Name)
}

// checksumFault reports whether a kernel of that release may get the outer UDP checksum wrong when
// it translates the address of a packet that left the overlay's device with its inner checksum
// still to be made (fixed by ea64d8d6c675, "netfilter: nat: never update the UDP checksum when
// it's 0", Linux 5.7). Distributions have carried the fix back, which the release does not show.
// An unreadable release counts as new. It is pure.
func checksumFault(release string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major < 5 || major == 5 && minor < 7
}

// vtepName is the device's name in a family, flannel's.
func vtepName(six bool, vni uint32) string {
	if six {
		return fmt.Sprintf("flannel-v6.%d", vni)
	}
	return fmt.Sprintf("flannel.%d", vni)
}

// isVTEPName reports whether name is one that vtepName gives.
func isVTEPName(name string) bool {
	ok, _ := regexp.MatchString(`^flannel(-v6)?\.[0-9]+$`, name) // the pattern is constant
	return ok
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

// String is for the log.
func (v VTEP) String() string {
	return fmt.Sprintf("%s id %d local %v dstport %d", v.Name, v.VNI, v.Local, v.Port)
}
