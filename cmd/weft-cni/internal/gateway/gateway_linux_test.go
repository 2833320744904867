package gateway

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/test/netns"
)

func prefixes(texts ...string) (ps []netip.Prefix) {
	for _, s := range texts {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

// dual is a node with a subnet of each family, in which it has not always been.
func dual() Node {
	return Node{
		Networks: prefixes("10.244.0.0/16", "fd42::/48"),
		Subnets:  prefixes("10.244.7.0/24", "fd42:0:0:7::/64"),
	}
}

// Only what plugin bridge would have given the bridge for another subnet of the network is a former gateway.
func TestFormer(t *testing.T) {
	for _, tt := range []struct {
		why, addr string
		node      Node
		want      bool
	}{
		{"another subnet's gateway", "10.244.3.1/24", dual(), true},
		{"another IPv6 subnet's gateway", "fd42:0:0:3::1/64", dual(), true},
		{"the gateway of today", "10.244.7.1/24", dual(), false},
		{"no gateway: the second address", "10.244.3.2/24", dual(), false},
		{"subnets of another length", "10.244.3.1/25", dual(), false},
		{"not in the network", "10.245.3.1/24", dual(), false},
		{"wider than the network", "10.244.0.1/8", dual(), false},
		{"link-local", "fe80::1/64", dual(), false},
		{"a family that the node has no subnet of", "fd42:0:0:3::1/64",
			Node{Networks: dual().Networks, Subnets: dual().Subnets[:1]}, false},
	} {
		if got := tt.node.former(netip.MustParsePrefix(tt.addr)); got != tt.want {
			t.Errorf("%s: %s former: %v, want %v", tt.why, tt.addr, got, tt.want)
		}
	}
}

// host is a namespace with a bridge named cni0 that has these addresses.
func host(t *testing.T, addrs ...string) *netns.Namespace {
	t.Helper()
	n := netns.New(t, "host")
	kind := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}
	if err := n.Netlink().LinkAdd(kind); err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			t.Fatal(err)
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := n.Netlink().AddrAdd(kind, addr); err != nil {
			t.Fatalf("%s: %v", a, err)
		}
	}
	return n
}

// listed is what the package's functions see of cni0, in the kernel's order.
func listed(t *testing.T, n *netns.Namespace) string {
	t.Helper()
	var out []string
	err := n.Do(func() error {
		_, have, err := addresses("cni0")
		for _, a := range have {
			out = append(out, a.String())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, " ")
}

func add(t *testing.T, n *netns.Namespace, node Node) {
	t.Helper()
	if err := n.Do(func() error { return node.Add("cni0") }); err != nil {
		t.Fatal(err)
	}
}

// The new gateway comes before the former one, since plugin bridge compares only the first; IPv6 is left to
// the plugin.
func TestAdd(t *testing.T) {
	for _, tt := range []struct {
		why  string
		have []string
		want string
	}{
		{"a former gateway", []string{"10.244.3.1/24"}, "10.244.7.1/24 10.244.3.1/24"},
		{"one of each family", []string{"10.244.3.1/24", "fd42:0:0:3::1/64"},
			"10.244.7.1/24 10.244.3.1/24 fd42:0:0:3::1/64"},
		{"two former ones", []string{"10.244.3.1/24", "10.244.4.1/24"},
			"10.244.7.1/24 10.244.3.1/24 10.244.4.1/24"},
		{"the gateway of today alone", []string{"10.244.7.1/24"}, "10.244.7.1/24"},
		{"no address yet", nil, ""},
		{"the operator's address", []string{"192.0.2.1/24"}, "192.0.2.1/24"},
		{"a former gateway of IPv6 alone", []string{"fd42:0:0:3::1/64"}, "fd42:0:0:3::1/64"},
	} {
		t.Run(tt.why, func(t *testing.T) {
			n := host(t, tt.have...)
			for range 2 { // the second time there is nothing to do
				add(t, n, dual())
				if got := listed(t, n); got != tt.want {
					t.Errorf("cni0 has %s, want %s", got, tt.want)
				}
			}
		})
	}
}

// A former gateway goes when nobody has an address of its subnet; everything else stays, in both families.
func TestRetire(t *testing.T) {
	for _, tt := range []struct {
		why   string
		used  []netip.Prefix
		want  string
		asked int
	}{
		{"nobody is left", nil, "10.244.7.1/24 192.0.2.1/24 fd42:0:0:7::1/64", 2},
		{"an IPv4 address is in use", prefixes("10.244.3.0/24"),
			"10.244.7.1/24 10.244.3.1/24 192.0.2.1/24 fd42:0:0:7::1/64", 2},
		{"an IPv6 address is in use", prefixes("fd42:0:0:3::/64"),
			"10.244.7.1/24 192.0.2.1/24 fd42:0:0:3::1/64 fd42:0:0:7::1/64", 2},
	} {
		t.Run(tt.why, func(t *testing.T) {
			n := host(t, "10.244.3.1/24", "192.0.2.1/24", "fd42:0:0:7::1/64", "fd42:0:0:3::1/64")
			add(t, n, dual())
			asked := 0
			err := n.Do(func() error {
				return dual().Retire("cni0", func(subnet netip.Prefix) bool {
					asked++
					return slices.Contains(tt.used, subnet)
				})
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := listed(t, n); got != tt.want || asked != tt.asked {
				t.Errorf("cni0 has %s after %d questions, want %s after %d", got, asked, tt.want, tt.asked)
			}
		})
	}
}
