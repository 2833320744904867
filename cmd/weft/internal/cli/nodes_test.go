package cli

import (
	"net/netip"
	"strings"
	"testing"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

func fiveNodes() []NodeKeys {
	one := func(name, id, address, subnet string) NodeKeys {
		return NodeKeys{name, id, []netip.Addr{addr(address)}, []netip.Prefix{prefix(subnet)}}
	}
	return []NodeKeys{
		one("db.example", "3f2a41c9d0", "192.0.2.1", "10.42.1.0/24"),
		one("web", "77aa", "192.0.2.2", "10.42.2.0/24"),
		one("web", "77ab", "192.0.2.3", "10.42.3.0/24"),
		one("10.42.4.0/24", "", "192.0.2.4", "10.42.4.0/24"),
		one("192.0.2.1", "evil", "192.0.2.5", "10.42.5.0/24"), // calls itself as another is reached
	}
}

func TestFindNode(t *testing.T) {
	for word, want := range map[string]int{
		"db.example": 0, "DB.Example": 0, "db": 0, "3f2a41c9d0": 0, "3f2a": 0, "192.0.2.1": 0, "10.42.1.0/24": 0,
		"10.42.1.77": 0, "::ffff:192.0.2.1": 0,
		"77aa": 1, "77ab": 2, "192.0.2.3": 2, "10.42.4.0/24": 3, "10.42.4.9": 3, "evil": 4,
	} {
		if got, err := FindNode(fiveNodes(), word); err != nil || got != want {
			t.Errorf("%q is node %d, %v, want %d", word, got, err, want)
		}
	}
	for word, says := range map[string][]string{
		"web":           {"2 nodes", "77aa at 192.0.2.2 with 10.42.2.0/24", "77ab at 192.0.2.3"},
		"wep":           {`"wep"`, "weft lease list"},
		"3f2":           {"no node"},
		"10.99.0.1":     {"no node"},
		"":              {"no node"},
		"x\x1b[2J":      {`"x\x1b[2J"`},
		"10.42.1.0/25":  {"no node"},
		"fe80::1%eth0":  {"no node"},
		"db.example.eu": {"no node"},
	} {
		_, err := FindNode(fiveNodes(), word)
		for _, part := range says {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %v, want %q in it", word, err, part)
			}
		}
	}
}
