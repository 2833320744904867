package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"weft/lease"
	"weft/test/await"
	"weft/test/fakekube"
)

// flanneldStarts does to a Node's annotations what a flanneld does when it takes its lease: it compares
// them as texts with what it wants, and writes all of them if any differs. What it does not know it leaves.
func flanneldStarts(annotations map[string]string, kind, data, public string) {
	const p = DefaultPrefix + "/"
	want := map[string]string{p + "kube-subnet-manager": "true", p + "backend-type": kind,
		p + "backend-data": data, p + "public-ip": public}
	for key, value := range want {
		if annotations[key] != value {
			maps.Copy(annotations, want)
			return
		}
	}
}

// What our annotation says ends with the rest of what weft wrote: a flanneld that starts on the node
// makes it flannel's, whatever the backend, also if it publishes the very same.
func TestAFlanneldEndsWhatWeftSaid(t *testing.T) {
	k, err := newKeys("")
	if err != nil {
		t.Fatal(err)
	}
	const vtep = `{"VNI":1,"VtepMAC":"02:00:00:00:00:02"}`
	weft := func() *lease.Weft {
		return &lease.Weft{Node: "b", Recv: []string{"gso", "pcsum", "pack"}, MTU: 1450,
			Addrs: []netip.Addr{netip.MustParseAddr("198.51.100.2")}}
	}
	public := netip.MustParseAddr("192.0.2.2")
	for name, a := range map[string]lease.Attrs{
		"udp":     {PublicIP: public, Weft: weft()},
		"vxlan":   {PublicIP: public, BackendType: "vxlan", BackendData: json.RawMessage(vtep), Weft: weft()},
		"host-gw": {PublicIP: public, BackendType: "host-gw", Weft: weft()},
	} {
		written, err := k.encode(a, backendOf(a.BackendType))
		if err != nil {
			t.Fatal(err)
		}
		back, err := k.decode(written)
		if err != nil || !back.Equal(a) {
			t.Errorf("%s: %+v %v, want %+v", name, back, err, a)
		}
		old := maps.Clone(written) // as weft wrote it before there were sums
		old[k.data] = strings.TrimSpace(old[k.data])
		b, err := json.Marshal(a.Weft)
		if err != nil {
			t.Fatal(err)
		}
		old[k.weft] = string(b)
		untied, err := k.decode(old)
		plain := weft()
		plain.Recv = nil
		if err != nil || cmp.Diff(plain, untied.Weft, cmp.Comparer(func(x, y netip.Addr) bool { return x == y })) !=
			"" {
			t.Errorf("%s: without a sum %+v %v, want all but Recv", name, untied.Weft, err)
		}
		flanneldStarts(written, a.BackendType, dataText(a.BackendData), public.String())
		after, err := k.decode(written)
		if err != nil || after.Weft != nil || !strings.Contains(written[k.weft], "pack") {
			t.Errorf("%s: after a flanneld has started: %+v %v in %q", name, after.Weft, err, written)
		}
		// What flannel reads as its own MAC (pkg/subnet/kube, GetStoredMacAddresses) stands in ours too.
		if written, err = k.encode(a, backendOf(a.BackendType)); err != nil || a.BackendType == "vxlan" &&
			strings.Split(strings.Trim(written[k.data], `"}`), `:"`)[1] != "02:00:00:00:00:02" {
			t.Errorf("%s: %q %v", name, written[k.data], err)
		}
	}
}

// So a peer that goes back to flannel gets flannel's bytes from then on, and weft's once it is back.
func TestAPeerGoesBackToFlannel(t *testing.T) {
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	s.Put(plain("b", "10.244.2.0/24"))
	config := func(o *Options) {
		o.RawConfig = []byte(`{"Network":"10.244.0.0/16","Backend":{"Type":"udp"}}`)
		o.Local.Attrs.BackendType, o.Local.Attrs.BackendData = "", nil
		o.Local.Attrs.Weft.Recv = []string{"gso", "pcsum", "pack"}
	}
	a := newTester(t, s, configOf(s, "a"), config)
	during(t, a.Run)
	startB := func() (stop func()) {
		b := newTester(t, s, configOf(s, "b"), func(o *Options) {
			config(o)
			o.Node, o.Local.Attrs.PublicIP = "b", netip.MustParseAddr("192.0.2.2")
		})
		stop = during(t, b.Run)
		b.wantState(lease.Held, "")
		return stop
	}
	receives := func(want string) {
		t.Helper()
		await.NoDiff(t, func() string {
			var got []string
			for _, p := range a.last().Peers {
				if p.Weft == nil {
					got = append(got, p.Kube.Name+" flannel")
				} else {
					got = append(got, fmt.Sprint(p.Kube.Name, " ", p.Weft.Recv))
				}
			}
			return cmp.Diff([]string{want}, got)
		})
	}
	stop := startB()
	receives("b [gso pcsum pack]")
	stop()
	s.Change("b", func(n *corev1.Node) { flanneldStarts(n.Annotations, "", "null", "192.0.2.2") })
	receives("b flannel")
	startB()
	receives("b [gso pcsum pack]")
}

// A node that leaves weft for good takes back its own annotation, and nothing else.
func TestForget(t *testing.T) {
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	tt := newTester(t, s, configOf(s, "a"), nil)
	stop := during(t, tt.Run)
	tt.wantState(lease.Held, "")
	stop()
	want := s.Node("a").Annotations
	const ours = DefaultPrefix + "/weft"
	for _, c := range []struct {
		dryRun, left bool
		says         string
	}{{true, true, ours}, {false, false, ours}, {false, false, ""}} {
		if got, err := tt.client.Forget(t.Context(), c.dryRun); got != c.says || err != nil {
			t.Errorf("%+v: %q %v", c, got, err)
		}
		have := s.Node("a").Annotations
		if !c.left {
			delete(want, ours)
		}
		if d := cmp.Diff(want, have); d != "" {
			t.Errorf("%+v: %s", c, d)
		}
	}
	s.Deny("get nodes")
	if _, err := tt.client.Forget(t.Context(), false); !Refuses(err) {
		t.Errorf("refused: %v", err)
	}
	s.Allow()
	s.Remove("a")
	if got, err := tt.client.Forget(t.Context(), false); got != "" || err != nil {
		t.Errorf("without a Node: %q %v", got, err)
	}
}
