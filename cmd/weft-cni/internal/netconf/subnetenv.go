package netconf

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Env is what the plugin reads from subnet.env. The daemon writes one network of each
// family; other writers have several, so lists are read.
type Env struct {
	// Networks are the overlay's, IPv4 before IPv6, masked and each once.
	Networks []netip.Prefix
	// Subnets are the node's: one of each family that is on, IPv4 first, masked.
	Subnets []netip.Prefix
	// MTU is the pods', in bytes.
	MTU int
	// IPMasq says that the node masquerades, so that the delegate need not.
	IPMasq bool
}

// MaxEnv bounds a subnet.env, in bytes.
const MaxEnv = 64 << 10

// ParseEnv reads the text of a subnet.env. Unknown keys are ignored, and of keys that
// occur twice the last one counts. The error joins every line that is wrong and names
// the keys that are missing.
func ParseEnv(text []byte) (Env, error) {
	if len(text) > MaxEnv {
		return Env{}, fmt.Errorf("more than %d bytes", MaxEnv)
	}
	values := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, MaxEnv+1)
	for lines.Scan() {
		line := strings.TrimPrefix(strings.TrimSpace(lines.Text()), "export ")
		if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			values[strings.TrimSpace(key)] = unquote(strings.TrimSpace(value))
		}
	}
	var e Env
	var faults []error
	for _, f := range []struct {
		prefix string
		four   bool
	}{{"FLANNEL_", true}, {"FLANNEL_IPV6_", false}} {
		networks, err := prefixes(values[f.prefix+"NETWORK"], f.four)
		if err != nil {
			faults = append(faults, fmt.Errorf("%sNETWORK: %w", f.prefix, err))
		}
		e.Networks = append(e.Networks, networks...)
		subnets, err := prefixes(values[f.prefix+"SUBNET"], f.four)
		if err == nil && len(subnets) > 1 {
			err = fmt.Errorf("%q is a list, and a node has one subnet", values[f.prefix+"SUBNET"])
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%sSUBNET: %w", f.prefix, err))
		}
		e.Subnets = append(e.Subnets, subnets...)
	}
	if s, ok := values["FLANNEL_MTU"]; ok {
		mtu, err := strconv.Atoi(s)
		if err != nil || mtu < 0 || mtu > 65535 {
			faults = append(faults, fmt.Errorf("FLANNEL_MTU: %q is not a number from 0 to 65535", s))
		}
		e.MTU = mtu
	}
	e.IPMasq = values["FLANNEL_IPMASQ"] == "true"
	if faults = append(faults, missing(values)); errors.Join(faults...) != nil {
		return Env{}, errors.Join(faults...)
	}
	return e, nil
}

// missing names the keys that are missing and without which no pod can be given an address.
func missing(values map[string]string) error {
	var keys []string
	one := func(a, b string) {
		if values[a] == "" && values[b] == "" {
			keys = append(keys, a, b)
		}
	}
	one("FLANNEL_NETWORK", "FLANNEL_IPV6_NETWORK")
	one("FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET")
	for _, key := range []string{"FLANNEL_MTU", "FLANNEL_IPMASQ"} {
		if _, ok := values[key]; !ok {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return fmt.Errorf("missing %s", strings.Join(keys, ", "))
}

// prefixes reads a comma list of one family, which may be empty.
func prefixes(list string, four bool) ([]netip.Prefix, error) {
	var out []netip.Prefix
	if list == "" {
		return nil, nil
	}
	for s := range strings.SplitSeq(list, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil {
			return nil, err
		}
		if p.Addr().Is4() != four || p.Addr().Is4In6() {
			return nil, fmt.Errorf("%s is of the other address family", p)
		}
		if p = p.Masked(); !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out, nil
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}
