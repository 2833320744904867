package kube

import (
	"strings"
	"testing"

	"weft/lease"
)

func TestOwnSubnets(t *testing.T) {
	const v6Config = `{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00:244::/48"}`
	for _, c := range []struct{ config, cidrs, own, note, fault string }{
		{v4Config, "10.244.1.0/24", "10.244.1.0/24", "", ""},
		{v4Config, "10.244.1.77/26", "10.244.1.64/26", "", ""},
		{v4Config, "", "", "", "--allocate-node-cidrs=true"},
		{v4Config, "10.245.1.0/24", "", "", "10.244.0.0/16"},
		{v4Config, "10.0.0.0/8", "", "", "10.244.0.0/16"},
		{v4Config, "fd00:244:0:1::/64", "", "", "fd00:244:0:1::/64"},
		{v4Config, "10.244.1.0/24 fd00:244:0:1::/64", "10.244.1.0/24", "EnableIPv6", ""},
		{v4Config, "10.244.1.0/24 10.244.2.0/24", "", "", "10.244.2.0/24"},
		{v4Config, "10.244.1.0/24 fd00::/64 10.244.2.0/24", "", "", "3 podCIDRs"},
		{v4Config, "10.244.1.0", "", "", `"10.244.1.0"`},
		{v4Config, "::ffff:10.244.1.0/120", "", "", "subnet"},
		{v4Config, "10.244.1.1/32", "", "", "addresses"},
		{dualConfig, "fd00:244:0:1::/64 10.244.1.0/24", "10.244.1.0/24,fd00:244:0:1::/64", "", ""},
		{dualConfig, "10.244.1.0/24", "10.244.1.0/24", "podCIDR", ""},
		{dualConfig, "10.244.1.0/24 fd01::/64", "", "", "fd00:244::/48"},
		{v6Config, "fd00:244:0:1::/64", "fd00:244:0:1::/64", "", ""},
		{v6Config, "10.244.1.0/24", "", "", "fd00:244::/48"},
	} {
		cfg, err := lease.ParseNetworkConfig([]byte(c.config))
		if err != nil {
			t.Fatal(err)
		}
		own, notes, err := ownSubnets(cfg, "n", strings.Fields(c.cidrs))
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) || own != (lease.Subnets{}) {
				t.Errorf("%q: %s, %v, want %q", c.cidrs, own, err, c.fault)
			}
			continue
		}
		if note := strings.Join(notes, "; "); err != nil || own.String() != c.own ||
			!strings.Contains(note, c.note) || c.note == "" && note != "" {
			t.Errorf("%q: %s, %q, %v, want %s, %q", c.cidrs, own, note, err, c.own, c.note)
		}
	}
}
