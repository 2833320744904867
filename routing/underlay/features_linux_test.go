package underlay

import (
	"slices"
	"sync/atomic"
	"testing"

	"weft/routing/internal/kernel"
	"weft/test/await"
)

func TestReadDevices(t *testing.T) {
	s, k := newSpace(t)
	s.link("eth0", 1500)
	s.ip("link add mac0 link eth0 type macvlan mode bridge")
	s.ip("link set mac0 up")
	index := func(name string) int {
		d, err := k.Device(name)
		if err != nil {
			t.Fatal(err)
		}
		return d.Index
	}
	eth0, mac0 := index("eth0"), index("mac0")

	has := func(link int, f string, names ...string) {
		t.Helper()
		d := ReadDevices(k, link)
		var got []string
		for _, dev := range d.List {
			if dev.Features.Has(f) {
				got = append(got, dev.Name)
			}
		}
		if d.Unknown != "" || !slices.Equal(got, names) {
			t.Errorf("%v on %q, want %q: %v", f, got, names, d)
		}
	}
	has(eth0, TunnelSegmentation, "eth0")
	if got := ReadDevices(k, mac0).List; len(got) != 2 || got[0].Name != "mac0" || got[1].Name != "eth0" {
		t.Errorf("under a macvlan: %+v", got)
	}

	var told atomic.Bool
	m, err := k.Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	m.Watch(kernel.Interest{Below: map[int]bool{eth0: true}})
	done := make(chan error, 1)
	go func() {
		done <- m.Follow(func(c kernel.Change) { told.Store(c == kernel.ChangedObjects) })
	}()
	if err := s.SetFeatures("eth0", map[string]bool{"tx-udp_tnl-segmentation": false}); err != nil {
		t.Fatal(err)
	}
	has(eth0, TunnelSegmentation)
	has(eth0, UDPSegmentation, "eth0")
	await.True(t, "a notification", told.Load)
	m.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if d := ReadDevices(k, 12345); d.Unknown == "" || len(d.List) > 0 {
		t.Errorf("no such link: %+v", d)
	}
}
