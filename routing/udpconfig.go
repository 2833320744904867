package routing

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"weft/encap"
	"weft/lease"
	"weft/tunnel"
)

// DefaultUDPPort is flannel's.
const DefaultUDPPort = 8285

// minMTU6 is the least MTU of a link that carries IPv6 (RFC 8200 section 5), and
// minMTU4 what every IPv4 host must take (RFC 791 section 3.2). In bytes.
const minMTU6, minMTU4 = encap.MinMTU6, encap.MinMTU4

// UDPOptions is the Backend object of a network config of type udp.
type UDPOptions struct {
	// Port is every node's UDP port, default DefaultUDPPort.
	Port uint16
	// Path is how packets are moved. With Auto it is the best that the kernel, the underlay's
	// link and our capabilities allow.
	Path tunnel.Path
	Auto bool
	// Off are the offloads that paths socket and raw do without.
	Off tunnel.OffloadSet
	// SourceCheck is how far senders are verified, default strict.
	SourceCheck tunnel.SourceCheck
	// AllowedSources are inner sources that any peer may use besides its own; masked.
	AllowedSources []netip.Prefix
	// MTU is the largest datagram with its IP header, in bytes, as flannel's key MTU is for
	// vxlan; 0 for that of the underlay link. A value above the link's has no effect.
	MTU int
}

// ParseUDPConfig reads the Backend object of c. Keys match in any case and unknown
// ones are ignored. The error joins one *lease.ConfigError for each fault.
func ParseUDPConfig(c lease.NetworkConfig) (UDPOptions, error) {
	o := UDPOptions{Port: DefaultUDPPort}
	var raw struct{ Port, Path, DisableOffloads, MTU json.RawMessage }
	if len(c.Backend) > 0 {
		if err := json.Unmarshal(c.Backend, &raw); err != nil {
			return UDPOptions{}, &lease.ConfigError{Key: "Backend", Got: string(c.Backend), Want: "a JSON object"}
		}
	}
	var faults []error
	fault := func(key string, got json.RawMessage, want string) {
		faults = append(faults, &lease.ConfigError{Key: "Backend." + key, Got: string(got), Want: want})
	}

	if given(raw.Port) {
		if err := json.Unmarshal(raw.Port, &o.Port); err != nil || o.Port == 0 {
			fault("Port", raw.Port, "a number from 1 to 65535")
		}
	}
	var word string
	var err error
	if err = unmarshalWord(raw.Path, &word); err != nil {
		fault("Path", raw.Path, pathWords)
	} else if o.Path, o.Auto, err = resolvePath(word); err != nil {
		fault("Path", raw.Path, err.Error())
	}
	var names []string
	err = nil
	if given(raw.DisableOffloads) {
		err = json.Unmarshal(raw.DisableOffloads, &names)
	}
	if err == nil {
		o.Off, err = tunnel.ParseOffloads(names)
	}
	if err != nil {
		fault("DisableOffloads", raw.DisableOffloads, `a list of offloads as ["tun-tso"]: `+err.Error())
	}
	k := readBackend(c)
	o.SourceCheck, o.AllowedSources = k.sources()
	faults = append(faults, k.faults...)
	if given(raw.MTU) {
		least := leastUDPMTU(c.EnableIPv6)
		if err := json.Unmarshal(raw.MTU, &o.MTU); err != nil || o.MTU < least || o.MTU > 65535 {
			fault("MTU", raw.MTU, fmt.Sprintf("a number from %d to 65535", least))
		}
	}
	if len(faults) > 0 {
		return UDPOptions{}, errors.Join(faults...)
	}
	return o, nil
}

const pathWords = `"auto", "raw", "socket" or "portable"`

// resolvePath turns the configuration's word into the path that is used. It is
// the one place that knows which paths this build has.
func resolvePath(word string) (p tunnel.Path, auto bool, err error) {
	switch strings.ToLower(word) {
	case "", "auto":
		return tunnel.PathRaw, true, nil
	case tunnel.PathRaw.String():
		return tunnel.PathRaw, false, nil
	case tunnel.PathSocket.String():
		return tunnel.PathSocket, false, nil
	case tunnel.PathPortable.String():
		return tunnel.PathPortable, false, nil
	}
	return 0, false, errors.New(pathWords)
}

// leastUDPMTU is the least outer MTU, in bytes, that leaves the inner one legal
// over an IPv4 underlay.
func leastUDPMTU(ipv6 bool) int {
	if ipv6 {
		return minMTU6 + encap.FormatIP.Overhead(false)
	}
	return minMTU4
}

// overlayMTU is the largest inner packet, in bytes, over an underlay of linkMTU.
// Peers that take less do not lower it: the data plane tells senders to such a
// peer so one by one, and two hosts with jumbo frames keep them among themselves.
func overlayMTU(linkMTU int, o UDPOptions, outer6, ipv6 bool) (int, error) {
	mtu := encap.InnerMTU(encap.FormatIP, outerMTU(linkMTU, o), outer6)
	least := minMTU4 - encap.FormatIP.Overhead(outer6)
	if ipv6 {
		least = minMTU6
	}
	if mtu < least {
		return mtu, fmt.Errorf("MTU %d of the overlay is below the %d that it needs: raise the MTU of the underlay, now %d, by %d (IPv6 needs 1280 inside)",
			mtu, least, outerMTU(linkMTU, o), least-mtu)
	}
	return mtu, nil
}

// outerMTU is the largest datagram with its IP header, in bytes.
func outerMTU(linkMTU int, o UDPOptions) int {
	if o.MTU > 0 {
		return min(linkMTU, o.MTU)
	}
	return linkMTU
}

func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func unmarshalWord(raw json.RawMessage, s *string) error {
	if !given(raw) {
		return nil
	}
	return json.Unmarshal(raw, s)
}

func parsePrefixes(raw json.RawMessage) ([]netip.Prefix, error) {
	if !given(raw) {
		return nil, nil
	}
	var words []string
	if err := json.Unmarshal(raw, &words); err != nil {
		return nil, errors.New("it is no list of strings")
	}
	var ps []netip.Prefix
	var errs []error
	for _, w := range words {
		p, err := netip.ParsePrefix(w)
		if err != nil || p.Addr().Is4In6() {
			errs = append(errs, fmt.Errorf("%q is no network", w))
			continue
		}
		ps = append(ps, p.Masked())
	}
	return ps, errors.Join(errs...)
}
