package routing

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"weft/lease"
	"weft/routing/hostrules"
	"weft/routing/underlay"
	"weft/test/netns"
)

// withToy are the types of this build and one more, by its line.
func withToy() Types {
	return append(BuiltIn(),
		toyType(),
	)
}

const toyConfig = `{"Network":"10.5.0.0/16","Backend":{"Type":"toy","ListenPort":7000,"Colour":"Green","MTU":1480,"SourceCheck":"off"}}`

// TestNewTypeIsConfigured adds a type of backend by one file and one line: what reads and judges network
// configs knows it.
func TestNewTypeIsConfigured(t *testing.T) {
	c, err := withToy().Parse([]byte(toyConfig))
	if err != nil || c.BackendType != "toy" {
		t.Fatal(c, err)
	}
	if unknown := c.Unknown; unknown != nil {
		t.Errorf("unknown keys %v", unknown)
	}
	if _, err := Parse([]byte(toyConfig)); err == nil || strings.Contains(err.Error(), `"toy"]`) {
		t.Errorf("the types of this build: %v", err)
	}
	for config, want := range map[string]string{
		`{"Network":"10.5.0.0/16","Backend":{"Type":"tyo"}}`:                         "Backend.Type",
		`{"Network":"10.5.0.0/16","Backend":{"Type":"toy","ListenPort":0}}`:          "Backend.ListenPort",
		`{"Network":"10.5.0.0/16","Backend":{"Type":"toy","Colour":"gren"}}`:         "Backend.Colour",
		`{"Network":"10.5.0.0/16","Backend":{"Type":"toy","MTU":1,"Colour":"grey"}}`: "Backend.MTU is 1",
	} {
		_, err := withToy().Parse([]byte(config))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", config, err, want)
		}
	}
	// What weftd --check, the rules, Kubernetes and the lab ask.
	f := c.Facts()
	if f.Port != 7000 || f.Carrier != CarrierKernel || f.Alone || f.DataV4 || !f.DataV6 || f.Commands != nil {
		t.Errorf("facts %+v", f)
	}
	if mtu, err := c.MTU(underlay.Link{Name: "eth0", MTU: 1500}); mtu != 1400 || err != nil {
		t.Errorf("MTU %d, %v", mtu, err)
	}
	if _, err := c.MTU(underlay.Link{Name: "eth0", MTU: 500}); err == nil ||
		!strings.Contains(err.Error(), "eth0") {
		t.Errorf("a small underlay: %v", err)
	}
	if !slices.Equal(BuiltIn().Names(), []string{"udp", "vxlan", "auto", "host-gw", "wireguard", "ipip", "alloc",
		"extension", "route-hook"}) {
		t.Errorf("the types of this build are %q: a global was changed", BuiltIn().Names())
	}
}

// TestNewTypeGetsPeers opens a backend of that type, and hands it peers.
func TestNewTypeGetsPeers(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	network, err := withToy().Parse([]byte(toyConfig))
	if err != nil {
		t.Fatal(err)
	}
	c := newBackendConfig(t, k, network)
	opened, err := NewNode(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	b := &kernelTest{Node: opened, t: t}
	if g := b.guardNow(); g != (hostrules.Guard{Port: 7000, Peers: true, Underlay: "eth0"}) {
		t.Errorf("guard %+v", g)
	}
	data, v6data := b.Publish()
	if b.Type() != "toy" || b.RecordType() != "toy" || string(data) != `{"Colour":"green"}` || v6data != nil ||
		b.MTU() != 1400 {
		t.Errorf("%s, record %s with %s and %s, MTU %d", b.Type(), b.RecordType(), data, v6data, b.MTU())
	}
	peer := func(n int, data string) lease.Record {
		r := vxlanPeer(n)
		r.BackendType, r.BackendData = "toy", json.RawMessage(data)
		return r
	}
	b.start()
	b.apply(kernelSet(b, peer(2, `{"Colour":"green"}`), peer(3, `{"Colour":"red"}`), vxlanPeer(4)))
	if err := listed("10.5.2.0/24 via 192.0.2.2 dev eth0\n")(); err != nil {
		t.Error(err)
	}
	st := b.Status()
	if !st.InPlace || !st.Up || st.Path != PathKernel || st.Peers != 1 || len(st.Skipped) != 2 ||
		!strings.Contains(st.Skipped[0].Reason, "node's") || !strings.Contains(st.Skipped[1].Reason, "backend") {
		t.Errorf("status %+v", st)
	}
}
