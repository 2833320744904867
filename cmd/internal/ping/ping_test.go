package ping

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/diagnose"
	"weft/lease"
	"weft/routing"
	"weft/routing/underlay"
)

// layerFake says what becomes of the questions to one layer.
type layerFake struct {
	carries int // answers packets up to so many bytes; 0 for all
	every   int // loses every so many; 0 for none
	silent  bool
	out     Outcome
}

// fake answers by layer.
type fake map[diagnose.Layer]layerFake

func (f fake) Ask(_ context.Context, q Question) Outcome {
	l := f[q.Layer]
	o := l.out
	o.RTTs = make([]time.Duration, len(q.Sizes))
	if l.silent || o.Said != nil || o.Cannot != "" || o.NoAnswers != "" || q.Layer == diagnose.Port && !q.Probe {
		return o
	}
	for i, size := range q.Sizes {
		switch {
		case l.carries > 0 && size > l.carries:
		case l.every > 0 && i%l.every == 0:
			continue
		default:
			o.RTTs[i] = time.Duration(i+1) * time.Millisecond
			continue
		}
		o.TooBig = l.out.TooBig
	}
	return o
}

var (
	peerAt, hereAt   = netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.1")
	overlay, ours    = netip.MustParseAddr("10.42.2.0"), netip.MustParseAddr("10.42.1.0")
	gateway, thisPod = netip.MustParseAddr("10.42.2.1"), netip.MustParseAddr("10.42.2.7")
)

func dead(layers ...diagnose.Layer) fake {
	f := fake{}
	for _, l := range layers {
		f[l] = layerFake{silent: true}
	}
	return f
}

func (fake) Neighbour(context.Context, netip.Addr) diagnose.Neighbour { return diagnose.Neighbour{} }

func (f fake) with(l diagnose.Layer, x layerFake) fake { f[l] = x; return f }

func said(by netip.Addr, k diagnose.Kind, text string) layerFake {
	return layerFake{out: Outcome{Said: &diagnose.Said{By: by, Kind: k, Text: text}}}
}

// ways of the kinds that are told apart.
func userspace() Route {
	return Route{
		Path: diagnose.Path{Peer: "b", Weft: true, Carried: true, Under: peerAt, UnderFrom: hereAt, Link: "eth0",
			UDPPort: 8285, From: ours, Gateway: gateway},
		Backend: "udp", DataPath: "raw", AnswersPort: true, Overlay: overlay, MTU: 1472, UnderMTU: 1500,
	}
}

func kernel() Route {
	w := byKernel(userspace())
	w.Backend, w.UDPPort, w.AnswersPort, w.MTU = "vxlan", 8472, false, 1450
	return w
}

func byKernel(w Route) Route { w.DataPath, w.Carried = kernelPath, false; return w }

func hostGW() Route {
	w := byKernel(userspace())
	w.Backend, w.UDPPort, w.AnswersPort, w.Direct, w.MTU, w.Overlay, w.From = "host-gw", 0, false, true, 1500,
		peerAt, hereAt
	return w
}

func ipip() Route {
	w := userspace()
	w.Backend, w.DataPath, w.UDPPort, w.Protocol, w.AnswersPort, w.MTU = "ipip", "socket", 0, 4, false, 1480
	return w
}

func routeHook() Route {
	w := hostGW()
	w.Backend, w.DataPath, w.Controller = "route-hook", "routes", true
	w.Not = map[diagnose.Layer]string{diagnose.Daemon: "nodes do not ask each other"}
	return w
}

// unused is a node whose record this node does not use.
func unused() Route {
	w := toPod(userspace())
	w.Unused = "its backend is ipip"
	w.Not = map[diagnose.Layer]string{diagnose.DataPlane: w.Unused, diagnose.Daemon: w.Unused,
		diagnose.Bridge: w.Unused, diagnose.Pod: w.Unused}
	return w
}

func flannel() Route {
	w := kernel()
	w.Weft, w.Not = false, map[diagnose.Layer]string{diagnose.Daemon: "it does not run weft"}
	return w
}

func toPod(w Route) Route { w.Pod = thisPod; return w }

func ownPod() Route { w := toPod(userspace()); w.Local = true; return w }

// Each row is a fault: what answers, which layer is said to be the first broken one, what cannot be told from
// it, and the causes in their order.
func TestBrokenLayersHaveTheirCauses(t *testing.T) {
	all := []diagnose.Layer{diagnose.Underlay, diagnose.Port, diagnose.DataPlane, diagnose.Daemon,
		diagnose.Bridge, diagnose.Pod}
	tooBig := layerFake{carries: 1400,
		out: Outcome{TooBig: &diagnose.Said{By: peerAt, Kind: diagnose.KindTooBig}}}
	for _, c := range []struct {
		name   string
		way    Route
		fake   fake
		heard  bool
		broken diagnose.Layer
		alike  []diagnose.Layer
		causes string // their codes; ! is behind one that was observed
	}{
		{"all is well", toPod(userspace()), fake{}, false, "", nil, ""},
		{"all is well by the kernel", toPod(kernel()), fake{}, false, "", nil, ""},
		{"all is well without a tunnel", toPod(hostGW()), fake{}, false, "", nil, ""},
		{"a flannel node", toPod(flannel()), dead(diagnose.Daemon), false, "", nil, ""},
		{"a pod of this node", ownPod(), fake{}, false, "", nil, ""},
		{"ICMP is dropped on the underlay", userspace(), dead(diagnose.Underlay), false, "", nil, ""},
		{"ICMP is dropped everywhere", userspace(), dead(diagnose.Underlay, diagnose.DataPlane,
			diagnose.Bridge), false, "", nil, ""},
		{"no bridge, and no pod asked for", userspace(), dead(diagnose.Bridge), false, "", nil, ""},
		{"pods without a bridge", toPod(userspace()), dead(diagnose.Bridge), false, "", nil, ""},
		{"a smaller MTU that is said", userspace(), fake{}.with(diagnose.Underlay, tooBig).with(diagnose.Port, tooBig),
			false, "", nil, ""},
		{"nothing answers", toPod(userspace()), dead(all...), false, diagnose.Underlay,
			[]diagnose.Layer{diagnose.Port, diagnose.DataPlane},
			"host-down network-broken peer-firewall wrong-neighbour no-way-back rp-filter record-old"},
		{"the neighbour is gone", userspace(), dead(all...).with(diagnose.Underlay, said(netip.Addr{},
			diagnose.KindHost, "no route to host")), false, diagnose.Underlay, nil,
			"host-down address-changed wrong-link"},
		{"no route", userspace(), dead(all...).with(diagnose.Underlay, said(netip.Addr{}, diagnose.KindNet,
			"network is unreachable")), false, diagnose.Underlay, nil, "no-route!"},
		{"this host forbids it", userspace(), dead(all...).with(diagnose.Underlay, said(netip.Addr{},
			diagnose.KindProhibited, "operation not permitted")), false, diagnose.Underlay, nil, "own-output!"},
		{"the router does not reach it", userspace(), dead(all...).with(diagnose.Underlay,
			said(netip.MustParseAddr("192.0.2.254"), diagnose.KindHost, "")), false, diagnose.Underlay, nil,
			"host-down router-route address-changed"},
		{"the router forbids it", userspace(), dead(all...).with(diagnose.Underlay,
			said(netip.MustParseAddr("192.0.2.254"), diagnose.KindProhibited, "")), false, diagnose.Underlay, nil,
			"forbidden!"},
		{"the port is silent", userspace(), dead(diagnose.Port, diagnose.DataPlane, diagnose.Daemon,
			diagnose.Bridge), false, diagnose.Port, []diagnose.Layer{diagnose.DataPlane},
			"dropped weftd-frozen own-rule not-known-there"},
		{"the peer is deaf", userspace(), dead(diagnose.Port, diagnose.DataPlane, diagnose.Daemon,
			diagnose.Bridge), true, diagnose.Port, nil, "dropped-one-way own-rule"},
		{"nothing listens", userspace(), dead(diagnose.DataPlane, diagnose.Daemon,
			diagnose.Bridge).with(diagnose.Port, said(peerAt, diagnose.KindPort, "")), false, diagnose.Port, nil,
			"weftd-stopped peer-rejects"},
		{"no device listens", kernel(), dead(diagnose.DataPlane, diagnose.Daemon,
			diagnose.Bridge).with(diagnose.Port, said(peerAt, diagnose.KindPort, "")), false, diagnose.Port, nil,
			"device-gone peer-rejects"},
		{"the peer's firewall rejects", userspace(), dead(diagnose.DataPlane, diagnose.Daemon,
			diagnose.Bridge).with(diagnose.Port, said(peerAt, diagnose.KindProhibited, "")), false, diagnose.Port,
			nil, "peer-rejects!"},
		{"a router rejects", userspace(), dead(diagnose.DataPlane, diagnose.Daemon,
			diagnose.Bridge).with(diagnose.Port, said(netip.MustParseAddr("192.0.2.254"), diagnose.KindProhibited,
			"")), false, diagnose.Port, nil, "way-rejects!"},
		{"this host rejects the port", userspace(), dead(diagnose.DataPlane, diagnose.Daemon,
			diagnose.Bridge).with(diagnose.Port, said(netip.Addr{}, diagnose.KindProhibited,
			"operation not permitted")), false, diagnose.Port, nil, "own-output!"},
		{"nothing takes the protocol", ipip(), dead(diagnose.DataPlane, diagnose.Daemon,
			diagnose.Bridge).with(diagnose.Port, said(peerAt, diagnose.KindProtocol, "")), false, diagnose.Port,
			nil, "weftd-stopped peer-rejects"},
		{"a device of ipip is gone", byKernel(ipip()), dead(diagnose.DataPlane, diagnose.Daemon,
			diagnose.Bridge).with(diagnose.Port, said(peerAt, diagnose.KindPort, "")), false, diagnose.Port, nil,
			"device-gone peer-rejects"},
		{"the peer's firewall rejects the protocol", ipip(), dead(diagnose.DataPlane, diagnose.Daemon,
			diagnose.Bridge).with(diagnose.Port, said(peerAt, diagnose.KindProhibited, "")), false, diagnose.Port,
			nil, "peer-rejects!"},
		{"this host rejects the protocol", ipip(), dead(diagnose.DataPlane, diagnose.Daemon,
			diagnose.Bridge).with(diagnose.Port, said(netip.Addr{}, diagnose.KindProhibited,
			"operation not permitted")), false, diagnose.Port, nil, "own-output!"},
		{"the protocol is answered for, and it works", ipip(), fake{}.with(diagnose.Port, said(peerAt,
			diagnose.KindPort, "")), false, "", nil, ""},
		{"the kernel's tunnel is silent", kernel(), dead(diagnose.DataPlane, diagnose.Daemon, diagnose.Bridge),
			false, diagnose.DataPlane, []diagnose.Layer{diagnose.Port},
			"dropped device-gone own-entries peer-input"},
		{"flannel's tunnel is silent", flannel(), dead(diagnose.DataPlane, diagnose.Bridge), false,
			diagnose.DataPlane, []diagnose.Layer{diagnose.Port},
			"dropped flanneld-stopped own-entries peer-input"},
		{"the port answers, and not the overlay", userspace(), dead(diagnose.DataPlane, diagnose.Daemon,
			diagnose.Bridge), false, diagnose.DataPlane, nil, "other-route peer-input data-plane-drops rp-filter"},
		{"this data plane knows nobody there", userspace(), dead(diagnose.Daemon,
			diagnose.Bridge).with(diagnose.DataPlane, said(ours, diagnose.KindNet, "")), false, diagnose.DataPlane,
			nil, "own-data-plane!"},
		{"the packets leave the overlay", userspace(), dead(diagnose.Daemon,
			diagnose.Bridge).with(diagnose.DataPlane, said(netip.MustParseAddr("192.0.2.254"), diagnose.KindNet,
			"")), false, diagnose.DataPlane, nil, "left-overlay!"},
		{"no route into the overlay", userspace(), dead(diagnose.Daemon,
			diagnose.Bridge).with(diagnose.DataPlane, said(netip.Addr{}, diagnose.KindNet, "")), false,
			diagnose.DataPlane, nil, "no-overlay-route own-output"},
		{"its weftd is frozen, and the kernel carries", kernel(), dead(diagnose.Daemon), false, diagnose.Daemon,
			nil, "weftd-frozen peer-input not-known-there"},
		{"its weftd does not run", kernel(), dead().with(diagnose.Daemon, said(peerAt, diagnose.KindPort, "")),
			false, diagnose.Daemon, nil, "weftd-stopped no-probes"},
		{"this host cannot send to it", hostGW(), dead().with(diagnose.Daemon, said(netip.Addr{}, "", "x")), false,
			diagnose.Daemon, nil, "own-output no-source"},
		{"its record is not used, and its port is closed", unused(), dead().with(diagnose.Port, said(peerAt,
			diagnose.KindPort, "")), false, diagnose.Port, nil, "not-used!"},
		{"its record is not used", unused(), dead(), false, diagnose.DataPlane, nil, "not-used!"},
		{"its host is down, and its record is not used", unused(), dead(all...).with(diagnose.Underlay,
			said(netip.Addr{}, diagnose.KindNet, "network is unreachable")), false, diagnose.Underlay, nil,
			"no-route!"},
		{"a router lacks what its controller says", toPod(routeHook()), dead(diagnose.Bridge, diagnose.Pod),
			false, diagnose.Bridge, []diagnose.Layer{diagnose.Pod},
			"router-route bridge-gone no-pods no-bridge peer-forward"},
		{"no bridge for the pod", toPod(userspace()), dead(diagnose.Bridge, diagnose.Pod), false,
			diagnose.Bridge, []diagnose.Layer{diagnose.Pod}, "bridge-gone no-pods no-bridge peer-forward"},
		{"no such pod", toPod(userspace()), dead(diagnose.Pod), false, diagnose.Pod, nil,
			"no-such-pod policy pod-link-down forwarding-off pod-mute"},
		{"no such pod here", ownPod(), dead(diagnose.Pod), false, diagnose.Pod, nil,
			"no-such-pod policy pod-link-down forwarding-off pod-mute"},
		{"a policy forbids the pod", toPod(userspace()), dead().with(diagnose.Pod, said(peerAt,
			diagnose.KindProhibited, "")), false, diagnose.Pod, nil,
			"policy no-such-pod pod-link-down forwarding-off pod-mute"},
		{"a part is lost on the underlay", userspace(),
			fake{diagnose.Underlay: {every: 3}, diagnose.Port: {every: 3}, diagnose.DataPlane: {every: 3}}, false,
			diagnose.Underlay, nil,
			"link-drops peer-link-drops hop-drops limit peer-limit"},
		{"a part is lost in the tunnel", kernel(), fake{diagnose.DataPlane: {every: 3}}, false,
			diagnose.DataPlane, nil,
			"receive-overflow limit peer-limit udp-policed link-drops peer-link-drops hop-drops"},
		{"a part is lost at the pod", toPod(userspace()), fake{diagnose.Pod: {every: 3}}, false, diagnose.Pod,
			nil, "bridge-drops pod-overloaded"},
		{"large ones are lost on the underlay", userspace(), fake{diagnose.Underlay: {carries: 1400},
			diagnose.Port: {carries: 1400}, diagnose.DataPlane: {carries: 1372}, diagnose.Bridge: {carries: 1372}},
			false, diagnose.Underlay, nil, "path-mtu icmp-dropped peer-mtu"},
		{"large ones are lost in the tunnel", kernel(), fake{diagnose.DataPlane: {carries: 1300},
			diagnose.Bridge: {carries: 1300}}, false, diagnose.DataPlane, nil,
			"large-udp-dropped peer-overlay-mtu"},
	} {
		r := Run(t.Context(), c.fake, c.way, Options{Count: 5, Interval: 1, Timeout: time.Second},
			heardWhile(c.heard))
		if r.Broken != c.broken || !slices.Equal(r.Alike, c.alike) {
			t.Errorf("%s: got %q, or %v; want %q, or %v: %+v", c.name, r.Broken, r.Alike, c.broken, c.alike, r.Layers)
		}
		var codes []string
		for _, x := range r.Causes {
			code := string(x.Code)
			if x.Observed {
				code += "!"
			}
			codes = append(codes, code)
			if x.Tells == "" || x.Command == "" || x.Where == "" {
				t.Errorf("%s: %+v", c.name, x)
			}
		}
		if got := strings.Join(codes, " "); got != c.causes {
			t.Errorf("%s: the causes are %q, want %q", c.name, got, c.causes)
		}
	}
}

func heardWhile(heard bool) func() (uint64, bool) {
	n := uint64(7)
	return func() (uint64, bool) {
		if heard {
			n++
		}
		return n, true
	}
}

// twice is a network in which two hosts have the peer's address.
type twice struct{ fake }

func (twice) Neighbour(_ context.Context, a netip.Addr) diagnose.Neighbour {
	return diagnose.Neighbour{At: a, Link: "eth0", Asked: true, Answers: []net.HardwareAddr{{2, 0, 0, 0, 0, 1},
		{2, 0, 0, 0, 0, 2}}}
}

// The link is asked whatever is not answered: the other host with the address may refuse the port.
func TestTheLinkIsAskedWhenAPortIsRefused(t *testing.T) {
	refuses := twice{dead(diagnose.DataPlane, diagnose.Daemon, diagnose.Bridge).with(diagnose.Port,
		said(peerAt, diagnose.KindPort, "refused"))}
	r := Run(t.Context(), refuses, userspace(), Options{Count: 5, Interval: 1, Timeout: 1}, nil)
	if len(r.Causes) != 1 || r.Causes[0].Code != "address-twice" {
		t.Errorf("%+v", r.Causes)
	}
}

// What was not asked is not said to be broken, and why is said.
func TestWhatCannotBeAskedIsSaid(t *testing.T) {
	w := toPod(userspace())
	w.Not = map[diagnose.Layer]string{diagnose.DataPlane: "no weftd", diagnose.Daemon: "no weftd",
		diagnose.Bridge: "no weftd", diagnose.Pod: "no weftd"}
	f := fake{diagnose.Underlay: {out: Outcome{Cannot: needs}},
		diagnose.Port: {out: Outcome{NoAnswers: "no right"}}}
	r := Run(t.Context(), f, w, Options{Count: 2, Interval: 1, Timeout: 1}, nil)
	if r.Broken != "" || len(r.Layers) != 6 {
		t.Errorf("got %+v", r)
	}
	for i, want := range []string{needs, "no right", "no weftd", "no weftd", "no weftd", "no weftd"} {
		if x := r.Layers[i]; x.Verdict != Unknown || x.Detail != want {
			t.Errorf("%s: %+v, want %q", x.Layer, x, want)
		}
	}
}

// The largest packet that passes is found to the byte, with a loss too, and in a few rounds.
func TestWidestIsExact(t *testing.T) {
	for _, expected := range []int{1280, 1450, 1500, 8951, 65535} {
		for _, carries := range []int{576, 577, 1279, 1280, 1281, 1399, 1400, 1449, 1499, 1500, 8950, 65535} {
			for _, every := range []int{0, 11} {
				rounds := 0
				a := counting{fake{diagnose.Underlay: {carries: carries, every: every}}, &rounds}
				f := layerResult{Row: Row{Expected: expected, Sent: 5, Answered: 5 - min(every, 1),
					RTT: &RTT{Max: time.Millisecond}}}
				got := widest(t.Context(), a, Question{Layer: diagnose.Underlay, To: peerAt}, f)
				if want := min(carries, expected); got.passed != want || !got.done || rounds > 9+proofs {
					t.Errorf("of %d with %d and a loss of each %d.: got %+v after %d rounds", expected, carries, every,
						got, rounds)
				}
			}
		}
	}
}

// Bursts that are lost on the way make no limit, wherever in the search they are: what is said to be one is
// one, and else what passed did.
func TestLostBurstsMakeNoLimit(t *testing.T) {
	const expected, most = 1500, 20
	f := layerResult{Row: Row{Expected: expected, Sent: 5, Answered: 5, RTT: &RTT{Max: time.Millisecond}}}
	for _, carries := range []int{600, 1328, expected} {
		done := 0
		for first := range most {
			for second := first; second <= most; second++ {
				for length := 1; length <= 4; length *= 2 {
					got := widest(t.Context(), &bursts{f: fake{diagnose.Underlay: {carries: carries}},
						at: []int{first, second}, length: length}, Question{Layer: diagnose.Underlay, To: peerAt}, f)
					if got.done && got.passed != carries || got.passed > carries {
						t.Errorf("with %d and bursts of %d at %d and %d: %+v", carries, length, first, second, got)
					}
					if got.done {
						done++
					}
				}
			}
		}
		if done < 3*most*most/4 { // of about 3*most*most/2
			t.Errorf("with %d: only %d searches came to an end", carries, done)
		}
	}
}

// All that is as long as every path carries is lost, for as long as it is asked for: there is no limit of 0
// bytes, and no layer is broken.
func TestNoLimitOfNothing(t *testing.T) {
	r := Run(t.Context(), fake{diagnose.Underlay: {carries: 575}}, userspace(),
		Options{Count: 5, Interval: 1, Timeout: time.Second}, nil)
	if x := r.Layers[0]; x.MTU != 0 || !x.MTUUnfinished || x.Verdict != Note || r.Broken != "" ||
		len(r.Causes) != 0 {
		t.Errorf("%+v", r)
	}
}

// bursts is a fake that loses whole series of questions: length of them from each of at on.
type bursts struct {
	Asker
	f      fake
	at     []int
	length int
	n      int
}

func (b *bursts) Ask(ctx context.Context, q Question) Outcome {
	o := b.f.Ask(ctx, q)
	for _, at := range b.at {
		if b.n >= at && b.n < at+b.length {
			clear(o.RTTs)
		}
	}
	b.n++
	return o
}

type counting struct {
	fake
	n *int
}

func (c counting) Ask(ctx context.Context, q Question) Outcome { *c.n++; return c.fake.Ask(ctx, q) }

// A question that is lost is asked again, so that one and a third of all are told apart.
func TestLossIsAskedAgain(t *testing.T) {
	r := Run(t.Context(), fake{diagnose.Underlay: {every: 4}}, userspace(),
		Options{Count: 4, Interval: 1, Timeout: 1}, nil)
	x := r.Layers[0]
	if x.Sent != 4+lookAgain || x.State != diagnose.Lossy || x.Loss == nil ||
		fmt.Sprintf("%.2f", *x.Loss) != "0.25" || x.RTT.Min != 2*time.Millisecond {
		t.Errorf("got %+v, %v", x, *x.Loss)
	}
}

// Each family is asked at its own port, and what has no port by its protocol.
func TestPortsAreThoseOfTheFamily(t *testing.T) {
	under := [2]netip.Addr{peerAt, netip.MustParseAddr("2001:db8::2")}
	for _, c := range []struct {
		backend string
		port    [2]uint16
	}{
		{`"Type":"wireguard","Mode":"separate"`, [2]uint16{51820, 51821}},
		{`"Type":"wireguard","Mode":"separate","ListenPort":7000,"ListenPortV6":7001`, [2]uint16{7000, 7001}},
		{`"Type":"udp"`, [2]uint16{8285, 8285}},
	} {
		network, err := routing.Parse(
			[]byte(`{"Network":"10.42.0.0/16","EnableIPv6":true,"IPv6Network":"fd42::/48","Backend":{` +
				c.backend + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		own := lease.Subnets{V4: netip.MustParsePrefix("10.42.1.0/24"),
			V6: netip.MustParsePrefix("fd42:0:0:1::/64")}
		k := Known{Running: true, Config: network, Own: own, Under: underlay.Link{Name: "eth0", MTU: 1500,
			Addr4: hereAt, Addr6: netip.MustParseAddr("2001:db8::1")}, DataPath: "socket", MTU: 1400}
		n := Node{Record: control.Record{Name: "b", PublicIP: under[0], PublicIPv6: under[1],
			Subnet: netip.MustParsePrefix("10.42.2.0/24"), IPv6Subnet: netip.MustParsePrefix("fd42:0:0:2::/64")},
			Peer: control.Peer{Weft: true}}
		ways, err := k.Routes(n, Want{})
		if err != nil || len(ways) != 2 {
			t.Fatalf("%s: %d ways, %v", c.backend, len(ways), err)
		}
		for i, w := range ways {
			if q := w.question(diagnose.Port); q.To != under[i] || q.Port != c.port[i] || w.Protocol != 0 ||
				!slices.Contains(w.layers(), diagnose.Port) {
				t.Errorf("%s: IPv%d is asked at %v port %d, protocol %d", c.backend, family(w.Six), q.To, q.Port,
					w.Protocol)
			}
		}
	}
	network, err := routing.Parse([]byte(`{"Network":"10.42.0.0/16","Backend":{"Type":"ipip"}}`))
	if err != nil {
		t.Fatal(err)
	}
	k := Known{Running: true, Config: network, Own: lease.Subnets{V4: netip.MustParsePrefix("10.42.1.0/24")},
		Under: underlay.Link{Addr4: hereAt}, DataPath: "socket"}
	ways, err := k.Routes(Node{Record: control.Record{Name: "b", PublicIP: peerAt,
		Subnet: netip.MustParsePrefix("10.42.2.0/24")}, Peer: control.Peer{Weft: true}}, Want{})
	if err != nil || len(ways) != 1 || ways[0].question(diagnose.Port).By != byIPIP ||
		ways[0].question(diagnose.Port).Port != 0 || !slices.Contains(ways[0].layers(), diagnose.Port) {
		t.Errorf("ipip: %+v, %v", ways, err)
	}
}

// TestLearnWaitsForABusyDaemon has a weftd answer as late as on a host whose processors are all taken.
func TestLearnWaitsForABusyDaemon(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers := map[string]any{
			"/v1/status": control.Status{Ready: true, Lease: &control.Lease{}},
			"/v1/peers":  control.Peers{}, "/v1/leases": control.Leases{Source: "weftd", Leases: []control.Record{{}}},
		}
		time.Sleep(800 * time.Millisecond)
		_ = json.NewEncoder(w).Encode(answers[r.URL.Path])
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	if k, err := Learn(t.Context(), path, nil); err != nil || !k.Running || len(k.Nodes) != 1 {
		t.Errorf("%+v, %v", k, err)
	}
}
