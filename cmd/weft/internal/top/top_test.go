package top

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"weft/cmd/internal/control"
	"weft/routing"
	"weft/test/golden"
)

func TestMain(m *testing.M) {
	golden.Flag()
	os.Exit(m.Run())
}

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func part(f float64) *float64 { return &f }

// before and after are two answers of one node, two seconds apart.
func before() Sample {
	drop := func(reason string, n uint64) []control.Drop { return []control.Drop{{Reason: reason, Packets: n}} }
	peer := func(name, id, at string, tx, rx uint64, q ...control.Probe) control.Peer {
		return control.Peer{Name: name, NodeID: id, Address: netip.MustParseAddr(at), Path: "raw",
			Traffic: &control.Traffic{TxPackets: tx, TxBytes: 1000 * tx, RxPackets: rx, RxBytes: 100 * rx}, Probes: q}
	}
	return Sample{
		At: noon.Add(-2 * time.Second),
		Status: control.Status{
			Name: "db1", NodeID: "3f2a41c9d07711aa3f2a41c9d07711aa", PID: 7, StartedAt: noon.Add(-time.Hour),
			Ready:   true,
			Backend: control.Backend{Type: "udp", Path: "raw", MTU: 1450},
			Counters: control.Counters{
				Egress: control.Flow{Received: 1000, Delivered: 990, DeliveredBytes: 1_000_000,
					Drops: drop("no_route", 10)},
				Ingress: control.Flow{Received: 500, Delivered: 500, DeliveredBytes: 50_000},
				Workers: []control.Worker{{Egress: 1000, Reads: 100, Writes: 50, Busy: 1e9},
					{Ingress: 500, Reads: 100, Writes: 500}},
				Offloads: []control.Offload{
					{Name: "tun-tso", State: "on", Calls: 10, Packets: 400}, {Name: "udp-gso", State: "lost"},
					{Name: "udp-gro", State: "on"},
					{Name: "tun-uso", State: "not supported by this kernel"},
				},
			},
		},
		Peers: control.Peers{Peers: []control.Peer{
			peer("db2", "ab12cd34ef56ab12cd34ef56", "192.0.2.2", 100, 100,
				control.Probe{Answers: "yes", Since: noon.Add(-50 * time.Minute), RTT: 230_000, LossOut: part(0),
					LossIn: part(0), PathMTU: 1450}),
			peer("a-node-with-a-rather-long-name.example.net", "", "192.0.2.3", 900, 400,
				control.Probe{Answers: "yes", Since: noon.Add(-3 * time.Minute), RTT: 12_000_000, LossOut: part(0.31),
					LossIn: part(0.02), PathMTU: 1400, LargeLost: true, Likely: "the path carries less", Look: "ip link"}),
			peer("web1", "web1", "192.0.2.4", 0, 0, control.Probe{Answers: "no", Since: noon.Add(-40 * time.Second),
				Likely: "UDP port 8285 is closed\x1b[2J", Look: "weft ping web1"}),
			{Name: "10.42.9.0/24", Address: netip.MustParseAddr("192.0.2.9"), Path: "raw", Traffic: &control.Traffic{},
				Probes: []control.Probe{{Answers: "yes", Since: noon.Add(-100 * time.Hour), RTT: 1_234_000,
					Loss: part(0.05)}}},
			{Name: "new", Address: netip.MustParseAddr("2001:db8::7"), Path: "raw", Traffic: &control.Traffic{},
				Probes: []control.Probe{{Answers: "unknown"}}},
		}},
	}
}

func after() Sample {
	s := before()
	s.At = noon
	c := &s.Status.Counters
	c.Egress = control.Flow{Received: 2_000_020, Delivered: 1_600_990, DeliveredBytes: 2_352_000_000,
		Drops: []control.Drop{{Reason: "no_route", Packets: 10}, {Reason: "ttl", Packets: 7}}}
	c.Ingress = control.Flow{Received: 25_500, Delivered: 25_000, DeliveredBytes: 3_000_000,
		Drops: []control.Drop{{Reason: "foreign_source", Packets: 500}}}
	c.SocketOverflow = 60
	c.Workers = []control.Worker{{Egress: 2_000_000, Ingress: 20, Reads: 44_500, Writes: 50_050, Busy: 25e8},
		{Ingress: 25_480, Reads: 20_100, Writes: 500, Busy: 1e8}}
	c.Offloads[0].Calls, c.Offloads[0].Packets = 45_454, 2_000_000
	p := s.Peers.Peers
	p[0].Traffic = &control.Traffic{TxPackets: 1_600_100, TxBytes: 2_351_000_000, RxPackets: 20_100,
		RxBytes: 2_400_000}
	p[1].Traffic = &control.Traffic{TxPackets: 901, TxBytes: 901_000, RxPackets: 402, RxBytes: 40_200}
	p[2].Drops = []control.Drop{{Reason: "foreign_source", Packets: 500}}
	return s
}

func view() Picture {
	b := before()
	return Diff(&b, after())
}

// TestGolden shows one moment on terminals of several sizes, and in a file.
func TestGolden(t *testing.T) {
	v := view()
	starting := Diff(nil, Sample{At: noon,
		Status: control.Status{NodeID: "3f2a", NotReady: []string{"store: connection refused",
			"lease: waiting for the store"}}})
	host := map[bool]Sample{false: before(), true: after()}
	for later, s := range host {
		s.Status.Backend.Type, s.Status.Backend.Path = "vxlan", "kernel"
		s.Status.Counters = control.Counters{Devices: []control.DeviceCounters{{Name: "flannel.1", Overlay: true},
			{Name: "eth0", DeviceCounters: routing.DeviceCounters{TxBytes: 5000}}}}
		if later {
			s.Status.Counters.Devices = []control.DeviceCounters{
				{Name: "flannel.1", Overlay: true, DeviceCounters: routing.DeviceCounters{TxBytes: 2_000_000,
					TxPackets: 2000, RxBytes: 500, RxPackets: 5, TxErrors: 8}},
				{Name: "eth0", DeviceCounters: routing.DeviceCounters{TxBytes: 50_000_000, RxBytes: 1000}}}
		}
		for i := range s.Peers.Peers {
			s.Peers.Peers[i].Traffic, s.Peers.Peers[i].Drops = nil, nil
		}
		host[later] = s
	}
	first := host[false]
	kernel := Diff(&first, host[true])
	for name, tt := range map[string]struct {
		v Picture
		o Options
	}{
		"40x24": {v, Options{Width: 40, Height: 24, Every: time.Second, Sort: ByTraffic}},
		"80x24": {v, Options{Width: 80, Height: 24, Every: time.Second, Sort: ByTraffic,
			Hint: "by traffic (s: next, q: quit)"}},
		"160x50": {v, Options{Width: 160, Height: 50, Every: time.Second, Sort: ByLoss,
			Hint: "by loss (s: next, q: quit)"}},
		"80x9": {v, Options{Width: 80, Height: 9, Every: time.Second, Sort: ByTraffic}},
		"file": {v, Options{Sort: ByName}},
		"gone": {v.Gone(noon.Add(time.Second), errors.New("weftd does not answer on /run/weft/weftd.sock")),
			Options{Width: 80, Height: 24}},
		"starting": {starting, Options{Width: 80, Height: 24}},
		"kernel":   {kernel, Options{Width: 80, Height: 24}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.o.Parts = Everything
			var b strings.Builder
			for _, l := range Render(tt.v, tt.o) {
				b.WriteString(l.Text + "\n")
			}
			golden.Check(t, name, []byte(b.String()))
		})
	}
}

// No size of a terminal is too small, and nothing leaves it.
func TestEverySizeIsKept(t *testing.T) {
	gone := view().Gone(noon, errors.New("it is gone"))
	for _, v := range []Picture{view(), gone, Diff(nil, before()), {}} {
		for width := range 200 {
			for height := range 40 {
				if width == 0 || height == 0 {
					continue
				}
				l := Render(v, Options{Width: width, Height: height, Sort: ByIn, Parts: Everything, Every: time.Second,
					Hint: "hint"})
				if len(l) > height {
					t.Fatalf("%dx%d: %d lines", width, height, len(l))
				}
				for _, x := range l {
					if utf8.RuneCountInString(x.Text) > width || strings.ContainsAny(x.Text, "\x1b\n") {
						t.Fatalf("%dx%d: %q", width, height, x.Text)
					}
				}
			}
		}
	}
}

// What was counted before a restart, or by another data plane, makes no rate.
func TestRatesNeedTheSameCounters(t *testing.T) {
	restarted, replaced, first := after(), after(), after()
	restarted.Status.PID, restarted.Status.StartedAt = 8, noon
	replaced.Status.Counters.Egress.Received = 5
	b := before()
	for name, tt := range map[string]struct {
		v    Picture
		note string
	}{"restarted": {Diff(&b, restarted), "weftd was restarted"}, "another data plane": {Diff(&b, replaced), ""},
		"first": {Diff(nil, first), ""}} {
		v := tt.v
		if v.Note != tt.note || v.Out != nil || v.In != nil || v.Drops != nil || v.Seconds != 0 ||
			v.Peers[0].Out != nil || v.Workers[0].Load != nil || v.Offloads[0].PerCall != nil {
			t.Errorf("%s: %+v", name, v)
		}
	}
	one := after() // a peer that came back counts from the beginning
	one.Peers.Peers[0].Traffic = &control.Traffic{TxPackets: 1}
	if v := Diff(&b, one); v.Out == nil || v.Peers[0].Out != nil || v.Peers[1].Out == nil {
		t.Errorf("a peer that came back: %+v", v.Peers[0].Out)
	}
}

func TestRates(t *testing.T) {
	v := view()
	if *v.Out != (Rate{800_000, 9_404_000_000}) || *v.In != (Rate{12_250, 11_800_000}) ||
		*v.Peers[0].Out != (Rate{800_000, 9_403_600_000}) {
		t.Errorf("out %+v, in %+v, peer %+v", *v.Out, *v.In, *v.Peers[0].Out)
	}
	if got := fmt.Sprint(v.Drops); got != "[{ingress foreign_source 250} {kernel socket 30} {egress ttl 3.5}]" {
		t.Error(got)
	}
	w := v.Workers[0]
	if *w.Load != 0.75 || *w.PerRead < 45 || *w.PerRead > 45.1 || *w.PerWrite < 39.9 || *w.PerWrite > 40 ||
		v.Workers[1].PerWrite != nil {
		t.Errorf("workers %v %v %v", *w.Load, *w.PerRead, *w.PerWrite)
	}
	if *v.Peers[2].Refused != 250 || *v.Offloads[0].PerCall < 43.9 || *v.Offloads[0].PerCall > 44.1 {
		t.Error(*v.Peers[2].Refused, *v.Offloads[0].PerCall)
	}
}

func TestSorting(t *testing.T) {
	for key, want := range map[string]string{
		ByTraffic: "db2", ByOut: "db2", ByIn: "db2", ByRTT: "web1", ByLoss: "web1", ByRefused: "web1",
		ByName: "10.42.9.0/24",
	} {
		if got := sorted(view().Peers, key)[0].Name; got != want {
			t.Errorf("by %s: %s, want %s", key, got, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 0.01: "<0.1", 0.4: "0.4", 9.94: "9.9", 9.96: "10", 999.4: "999", 999.6: "1.00k", 9994: "9.99k",
		12_345: "12.3k", 123_456: "123k", 999_600: "1.00M", 9.404e9: "9.40G", 1e17: "100P",
	} {
		if got := si(f); got != want || len(got) > 5 {
			t.Errorf("%g: %s, want %s", f, got, want)
		}
	}
}
