package show

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
)

// A store that refuses us has answered: it is not shown as silent.
func TestARefusalIsNotSilence(t *testing.T) {
	now := time.Unix(100000, 0)
	s := control.Store{Kind: control.KindKubernetes, LastSeen: now.Add(-time.Second),
		FailingSince: now.Add(-time.Minute), Error: "list nodes: forbidden"}
	for want, refuses := range map[string]bool{"REFUSES": true, "ANSWERS": false} {
		s.Refuses = refuses
		if got := storeLine(s, now); !strings.Contains(got, want) || strings.Contains(got, "NOT ANSWERING") ||
			!strings.Contains(got, s.Error) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A store that answers late is slow; it is not lost.
func TestASlowStoreIsShownAsSlow(t *testing.T) {
	now := time.Unix(100000, 0)
	s := control.Store{Kind: "etcd", Connected: true, LastSeen: now, Took: 3 * time.Second}
	if got := storeLine(s, now); !strings.Contains(got, "SLOW") || strings.Contains(got, "NOT ANSWERING") {
		t.Error(got)
	}
	s.Took = control.SlowStore
	if got := storeLine(s, now); strings.Contains(got, "SLOW") {
		t.Error(got)
	}
}

// weft status says where the TUN is, and how a program gets there.
func TestNamespaceLine(t *testing.T) {
	t.Parallel()
	for want, n := range map[string]control.Namespace{
		"made by weftd, kept by process 7, without root: nsenter -t 7 -U -n --preserve-credentials COMMAND": {
			PID: 7, Own: true, Rootless: true, Enter: "nsenter -t 7 -U -n --preserve-credentials"},
		"of process 7, without root": {PID: 7, Rootless: true},
		"/run/netns/a: nsenter --net=/run/netns/a COMMAND": {Path: "/run/netns/a",
			Enter: "nsenter --net=/run/netns/a"},
	} {
		if got := namespaceLine(n); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// weft status says where packets go that are for no pod and no peer.
func TestWayOutLine(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]control.WayOut{
		"nowhere: the namespace has no default route, which slirp4netns or pasta give it": {Masquerade: true},
		"IPv4 by tap0, IPv6 nowhere": {IPv4: "tap0", Masquerade: true},
		"IPv6 by tap0, IPv4 nowhere": {IPv6: "tap0", Masquerade: true},
		"by eth0":                    {IPv4: "eth0", IPv6: "eth0", Masquerade: true},
		"IPv4 by tap0, IPv6 by tap1": {IPv4: "tap0", IPv6: "tap1", Masquerade: true},
		"by eth0; what pods send there gets no answer through slirp4netns or pasta without --ip-masq": {
			IPv4: "eth0", IPv6: "eth0"},
	} {
		if got := wayOutLine(o); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestStatusShowsBothConfigs(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config control.Config
		want   []string
	}{
		{"the same", control.Config{InUse: "A"}, nil},
		{"another", control.Config{InUse: "A", Differs: true, Other: "B",
			Changes: []string{"type from udp to vxlan"}},
			[]string{"config=not the store's: weft reload", "=in use: A", "=store: B",
				"=a restart changes type from udp to vxlan"}},
		{"a bad one", control.Config{InUse: "{\n  \"A\": 1\n}\n", Differs: true, Other: "B",
			Faults: []string{"Backend.Type is"}},
			[]string{"config=the one that the store had before", "=in use: { \"A\": 1 }", "=store: B",
				"=Backend.Type is"}},
		{"a fallback", control.Config{InUse: "A", Differs: true, LastGood: true, Faults: []string{"x"}},
			[]string{"config=THE LAST GOOD ONE", "=in use: A", "=store: none", "=x"}},
		{"an unknown key", control.Config{InUse: "A", Unknown: []string{"Prot"}}, []string{"config=Prot"}},
	} {
		var got []string
		configRows(func(name, format string, a ...any) { got = append(got, name+"="+fmt.Sprintf(format, a...)) },
			control.Status{Config: tt.config})
		if len(got) != len(tt.want) {
			t.Fatalf("%s: %q", tt.name, got)
		}
		for i, w := range tt.want {
			if !strings.HasPrefix(got[i], w) {
				t.Errorf("%s: got %q, want %q", tt.name, got[i], w)
			}
		}
	}
}

func TestDeviceLines(t *testing.T) {
	at := netip.MustParseAddrPort("192.0.2.1:8285")
	s := control.Status{
		Underlay: control.Underlay{Devices: []control.Device{
			{Name: "eth0.5", Features: []string{"tx-udp-segmentation", "rx-gro"}}, {Name: "eth0"}}},
		Counters: control.Counters{Outlets: []control.Outlet{
			{Local: at, Outlet: "runs", Because: "eth0 cuts UDP and no tunnels"},
			{Local: at, Outlet: "whole", Because: "eth0 cuts tunnels"},
			{Local: at, Outlet: "cut", Because: "they cannot leave whole, and udp-gso is not in use"},
		}},
	}
	got := deviceLines(s)
	if len(got) != 5 || got[0] != "eth0.5: tx-udp-segmentation rx-gro" || got[1] != "eth0: -" {
		t.Errorf("%q", got)
	}
	for i, o := range s.Counters.Outlets {
		if line := got[2+i]; !strings.Contains(line, at.String()) || !strings.Contains(line, o.Because) {
			t.Errorf("%+v: %q", o, line)
		}
	}
	if got := deviceLines(control.Status{Underlay: control.Underlay{DevicesUnknown: "no netlink"}}); len(got) != 1 {
		t.Errorf("not known: %q", got)
	}
}

func TestStatusSaysWhoKeepsDescriptors(t *testing.T) {
	for want, k := range map[string]*control.Custody{
		"":        nil,
		"holder":  {By: custody.ByHolder, PID: 7, Items: 2, Descriptors: 2},
		"service": {By: custody.ByManager, Items: 2, Descriptors: 2, Discarded: 3},
		"nobody":  {Items: 2, Descriptors: 2, Fault: "because"},
	} {
		var got strings.Builder
		custodyRows(func(name, format string, a ...any) { fmt.Fprintf(&got, name+" "+format+"\n", a...) }, k)
		if !strings.Contains(got.String(), want) || (k == nil) != (got.Len() == 0) ||
			k != nil && !strings.Contains(got.String(), k.Fault) {
			t.Errorf("%+v: %q", k, got.String())
		}
	}
}
