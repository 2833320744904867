package routing

import (
	"os"
	"strings"
	"testing"

	"weft/routing/internal/kernel"
	"weft/test/netns"
)

// A device of ours on which packets may come in from peers that are reached by a plain route is never
// strict. Other settings of it, and of other links, stay as they are.
func TestReversePathOfOurDevice(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	set := func(link, value string) {
		if err := os.WriteFile(kernel.Conf4+"/"+link+"/rp_filter", []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ all, own, want string }{
		{"0", "0", "0"}, {"1", "0", "2"}, {"0", "1", "2"}, {"1", "1", "2"}, {"2", "1", "1"}, {"1", "2", "2"},
	} {
		set("all", c.all)
		set("eth0", c.own)
		if err := k.Loosen("eth0"); err != nil {
			t.Fatal(err)
		}
		if got, err := kernel.ReadSetting(kernel.Conf4+"/eth0", kernel.ReversePath); got != c.want || err != nil {
			t.Errorf("all %s, own %s: now %s, want %s; %v", c.all, c.own, got, c.want, err)
		}
	}
	set("all", "1")
	set("eth0", "0")
	for _, backend := range []string{`{"Type":"vxlan"}`, `{"Type":"auto"}`} {
		b := openKernelBackend(t, k, strings.Replace(vxlan4, `{"Type":"vxlan"}`, backend, 1), nil)
		b.apply(kernelSet(b, vxlanPeer(2)))
		want := map[string]string{"vxlan": "0", "auto": "2"}[b.Type()]
		if got, err := kernel.ReadSetting(kernel.Conf4+"/flannel.1", kernel.ReversePath); got != want ||
			err != nil {
			t.Errorf("%s: flannel.1 has %s, want %s; %v", backend, got, want, err)
		}
		if got, _ := kernel.ReadSetting(kernel.Conf4+"/eth0", kernel.ReversePath); got != "0" {
			t.Errorf("%s: eth0 has %s", backend, got)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
