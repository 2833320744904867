package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ErrKey says that a key is not one that a node writes.
var ErrKey = errors.New("not the key of a subnet")

// noV4 stands in a key for a node without an IPv4 subnet.
const noV4 = "0.0.0.0-0"

// Key returns the last element of the record's key in the store: "10.5.52.0-24",
// or "10.12.13.0-24&fd00:12:13::-56" with both families. Without IPv4 the first
// half is 0.0.0.0-0, which flannel reads as the whole address space. The zero
// Subnets give "".
func (s Subnets) Key() string {
	switch {
	case s == Subnets{}:
		return ""
	case !s.V6.IsValid():
		return keyHalf(s.V4)
	case !s.V4.IsValid():
		return noV4 + "&" + keyHalf(s.V6)
	}
	return keyHalf(s.V4) + "&" + keyHalf(s.V6)
}

func keyHalf(p netip.Prefix) string {
	return p.Addr().String() + "-" + strconv.Itoa(p.Bits())
}

// ParseKey reads what Key writes, and nothing else: no host bits, no second
// spelling of an address, no /32 or /128. So two keys never name one subnet. The
// error wraps ErrKey.
func ParseKey(key string) (Subnets, error) {
	half4, half6, dual := strings.Cut(key, "&")
	var s Subnets
	if !dual || half4 != noV4 {
		s.V4 = parseHalf(half4)
		if !s.V4.Addr().Is4() || s.V4.Bits() < 1 || s.V4.Bits() > 31 {
			return Subnets{}, fmt.Errorf("%q: %w", key, ErrKey)
		}
	}
	if dual {
		s.V6 = parseHalf(half6)
		if !family6.is(s.V6.Addr()) || s.V6.Bits() < 1 || s.V6.Bits() > 127 {
			return Subnets{}, fmt.Errorf("%q: %w", key, ErrKey)
		}
	}
	if s.Key() != key {
		return Subnets{}, fmt.Errorf("%q, which is written %q: %w", key, s.Key(), ErrKey)
	}
	return s, nil
}

// parseHalf returns the zero prefix for anything that is not a masked prefix.
func parseHalf(half string) netip.Prefix {
	addr, bits, _ := strings.Cut(half, "-")
	a, err := netip.ParseAddr(addr)
	n, errBits := strconv.ParseUint(bits, 10, 8)
	if err != nil || errBits != nil || a.Zone() != "" {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, int(n)).Masked()
}

// String is how a person writes the subnets: "10.5.52.0/24", or both families
// with a comma.
func (s Subnets) String() string {
	switch {
	case s == Subnets{}:
		return "none"
	case !s.V6.IsValid():
		return s.V4.String()
	case !s.V4.IsValid():
		return s.V6.String()
	}
	return s.V4.String() + "," + s.V6.String()
}

// ParseSubnets reads what a person writes: the form of String, or of Key.
func ParseSubnets(text string) (Subnets, error) {
	if s, err := ParseKey(text); err == nil {
		return s, nil
	}
	var s Subnets
	for _, part := range strings.Split(text, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return Subnets{}, fmt.Errorf("subnet %q: %w", text, err)
		}
		switch {
		case p.Addr().Is4() && !s.V4.IsValid():
			s.V4 = p
		case family6.is(p.Addr()) && !s.V6.IsValid():
			s.V6 = p
		default:
			return Subnets{}, fmt.Errorf("subnet %q: want one per address family", text)
		}
	}
	if _, err := ParseKey(s.Key()); err != nil {
		return Subnets{}, err
	}
	return s, nil
}

// Masked returns s without host bits.
func (s Subnets) Masked() Subnets { return Subnets{V4: s.V4.Masked(), V6: s.V6.Masked()} }

// Overlaps reports whether the two share an address in either family.
func (s Subnets) Overlaps(t Subnets) bool {
	return overlaps(s.V4, t.V4) || overlaps(s.V6, t.V6)
}

func overlaps(a, b netip.Prefix) bool { return a.IsValid() && b.IsValid() && a.Overlaps(b) }

// Contains reports whether a is in either subnet.
func (s Subnets) Contains(a netip.Addr) bool { return s.V4.Contains(a) || s.V6.Contains(a) }

// Compare orders by V4, then by V6; an absent prefix comes first.
func (s Subnets) Compare(t Subnets) int {
	if c := ComparePrefix(s.V4, t.V4); c != 0 {
		return c
	}
	return ComparePrefix(s.V6, t.V6)
}

func ComparePrefix(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}
