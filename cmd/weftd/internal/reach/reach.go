// Package reach says whether the overlay would cut the daemon off from its store.
package reach

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"weft/lease"
	"weft/routing"
	"weft/routing/underlay"
)

// Hosts returns the host parts of endpoints, which are URLs or host:port.
func Hosts(endpoints []string) []string {
	var out []string
	for _, e := range endpoints {
		if !strings.Contains(e, "://") {
			e = "//" + e
		}
		if u, err := url.Parse(e); err == nil && u.Hostname() != "" {
			out = append(out, u.Hostname())
		}
	}
	return out
}

// Names returns the hosts of endpoints that are names, which have to be looked up.
func Names(endpoints []string) []string {
	return slices.DeleteFunc(Hosts(endpoints), func(h string) bool {
		_, err := netip.ParseAddr(h)
		return err == nil
	})
}

// Literals returns the hosts of endpoints that are addresses.
func Literals(endpoints []string) []netip.Addr { return addrs(Hosts(endpoints)) }

// Addrs returns the addresses of endpoints. Names are looked up until ctx ends; one that
// does not resolve is left out.
func Addrs(ctx context.Context, endpoints []string) []netip.Addr {
	found, _ := Lookup(ctx, Names(endpoints)) // what is not known cannot be judged
	return append(Literals(endpoints), found...)
}

// Lookup returns the addresses of all names that resolve before ctx ends. The error joins
// those of the others.
func Lookup(ctx context.Context, names []string) ([]netip.Addr, error) {
	var out []netip.Addr
	var faults []error
	for _, name := range names {
		found, err := net.DefaultResolver.LookupHost(ctx, name)
		out, faults = append(out, addrs(found)...), append(faults, err)
	}
	return out, errors.Join(faults...)
}

func addrs(words []string) []netip.Addr {
	var out []netip.Addr
	for _, w := range words {
		if a, err := netip.ParseAddr(w); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// Store says why an overlay of network would cut this host, in the calling thread's
// namespace, off from a store at addrs, and what to do; "" if it would not. what is the
// store's name in the message, such as "the store". The error is the kernel's.
func Store(network lease.NetworkConfig, what string, addrs []netip.Addr) (string, error) {
	k, err := routing.OpenKernel()
	if err != nil {
		return "", err
	}
	defer func() { _ = k.Close() }() // descriptors of this process only
	displaced, err := underlay.FindDisplaced(k, network.Networks(), addrs)
	var out []string
	for _, d := range displaced {
		if reason := d.Reason(what); !slices.Contains(out, reason) {
			out = append(out, reason)
		}
	}
	return strings.Join(out, "; "), err
}
