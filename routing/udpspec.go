package routing

import (
	"net/netip"
	"slices"
	"strconv"

	"weft/lease"
	"weft/tunnel"
)

// localSpec is what concerns this node itself.
func localSpec(at situation, o UDPOptions) *tunnel.Spec {
	set, u := at.set, at.under
	s := tunnel.Spec{
		Local:       subnets(set.Own.Subnets),
		UnderlayMTU: at.outer, MTU: at.mtu,
		Check: o.SourceCheck, AllowedSources: o.AllowedSources,
		Self: unique(valid(u.Addr4, u.Addr6, u.Ext4, u.Ext6)),
	}
	if set.Own.Weft != nil {
		s.Self = unique(append(s.Self, valid(set.Own.Weft.Addrs...)...))
	}
	if set.Own.V4.IsValid() {
		s.Address4 = set.Own.V4.Addr()
	}
	if set.Own.V6.IsValid() {
		s.Address6 = set.Own.V6.Addr()
	}
	return &s
}

// backendName is a record's type for a message: anything may be in one.
func backendName(backendType string) string {
	if backendType == "" {
		return lease.BackendName("")
	}
	return strconv.Quote(backendType)
}

// peerName is what people call the owner of r.
func peerName(r lease.Record) string {
	switch {
	case r.Weft != nil && r.Weft.Node != "":
		return r.Weft.Node
	case r.V4.IsValid():
		return r.V4.String()
	}
	return r.V6.String()
}

func subnets(s lease.Subnets) []netip.Prefix {
	switch {
	case s.V4.IsValid() && s.V6.IsValid():
		return []netip.Prefix{s.V4, s.V6}
	case s.V4.IsValid():
		return []netip.Prefix{s.V4}
	case s.V6.IsValid():
		return []netip.Prefix{s.V6}
	}
	return nil
}

// valid are those of addrs that are set; it takes the slice over.
func valid(addrs ...netip.Addr) []netip.Addr {
	return slices.DeleteFunc(addrs, func(a netip.Addr) bool { return !a.IsValid() })
}

func unique(as []netip.Addr) []netip.Addr {
	slices.SortFunc(as, netip.Addr.Compare)
	return slices.Compact(as)
}
