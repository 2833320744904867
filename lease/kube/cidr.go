package kube

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"weft/lease"
)

// cidrsOf returns the Node's podCIDRs; API servers before 1.16 have podCIDR alone.
func cidrsOf(n *corev1.Node) []string {
	if len(n.Spec.PodCIDRs) > 0 || n.Spec.PodCIDR == "" {
		return n.Spec.PodCIDRs
	}
	return []string{n.Spec.PodCIDR}
}

// parseCIDRs reads podCIDRs: at most one of each family, in any order. None give the zero Subnets.
func parseCIDRs(cidrs []string) (s lease.Subnets, err error) {
	if len(cidrs) > 2 {
		return s, fmt.Errorf("%d podCIDRs: want one, or one of each family", len(cidrs))
	}
	for _, text := range cidrs {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil || p.Addr().Is4In6():
			return lease.Subnets{}, fmt.Errorf("podCIDR %q is no subnet", clip(text))
		case p.Addr().Is4() && s.V4.IsValid(), p.Addr().Is6() && s.V6.IsValid():
			return lease.Subnets{}, fmt.Errorf("podCIDRs %s and %s are of one family: want one, or one of each family",
				cidrs[0], cidrs[1])
		case p.Addr().Is4():
			s.V4 = p.Masked()
		default:
			s.V6 = p.Masked()
		}
	}
	if _, err := lease.ParseKey(s.Key()); s != (lease.Subnets{}) && err != nil {
		return lease.Subnets{}, fmt.Errorf("podCIDRs %s hold no two addresses, or all of them", s)
	}
	return s, nil
}

// ownSubnets returns those of a node's podCIDRs that the network can use. notes say why it cannot use the
// others.
func ownSubnets(cfg lease.NetworkConfig, name string, cidrs []string) (own lease.Subnets, notes []string,
	err error) {
	const source = "the controller manager assigns it: see its --allocate-node-cidrs=true and --cluster-cidr " +
		"(kubeadm: --pod-network-cidr)"
	if len(cidrs) == 0 {
		return own, nil, fmt.Errorf("node %q has no podCIDR yet: %s, which has to lie inside %s", name, source,
			networks(cfg))
	}
	s, err := parseCIDRs(cidrs)
	if err != nil {
		return own, nil, fmt.Errorf("node %q: %w", name, err)
	}
	for _, f := range []struct {
		family   string
		on       bool
		network  netip.Prefix
		cidr     netip.Prefix
		into     *netip.Prefix
		key, net string
	}{
		{"IPv4", cfg.EnableIPv4, cfg.Network, s.V4, &own.V4, "EnableIPv4", "Network"},
		{"IPv6", cfg.EnableIPv6, cfg.IPv6Network, s.V6, &own.V6, "EnableIPv6", "IPv6Network"},
	} {
		switch {
		case !f.on && f.cidr.IsValid():
			notes = append(notes, fmt.Sprintf("podCIDR %s of node %q is not used: %s is false in the network "+
				"configuration", f.cidr, name, f.key))
		case f.on && !f.cidr.IsValid():
			notes = append(notes, fmt.Sprintf("node %q has no podCIDR of %s, and %s is true: its pods have none of "+
				"%s %s", name, f.family, f.key, f.net, f.network))
		case f.on && (f.cidr.Bits() < f.network.Bits() || !f.network.Contains(f.cidr.Addr())):
			return lease.Subnets{}, nil,
				fmt.Errorf("podCIDR %s of node %q is not inside %s %s: one of the controller manager's --cluster-cidr "+
					"and the network configuration is wrong", f.cidr, name, f.net, f.network)
		case f.on:
			*f.into = f.cidr
		}
	}
	if own == (lease.Subnets{}) {
		return own, nil, fmt.Errorf("node %q has podCIDRs %s, none of a family that is on: the network has %s",
			name, s, networks(cfg))
	}
	return own, notes, nil
}

// networks names the overlay's address space.
func networks(cfg lease.NetworkConfig) lease.Subnets {
	return lease.Subnets{V4: cfg.Network, V6: cfg.IPv6Network}
}
