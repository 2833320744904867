package show

import (
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
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
