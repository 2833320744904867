package routing

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft/lease"
	"weft/routing/hostrules"
	"weft/routing/internal/kernel"
	"weft/routing/internal/wireguard"
	"weft/test/netns"
)

const encryptedNetwork = `{"Network":"10.5.0.0/16","Backend":{"Type":"auto","Encrypt":"between-links","Userspace":"always"}}`

// TestEncryptWithoutRules: there is no route before the rules by which nothing is in plain, and it comes when
// they can be made. The device is not strict about senders, since a peer that is sent packets in plain may
// encrypt its own.
func TestEncryptWithoutRules(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	netns.Command(t, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1")
	network, err := Parse([]byte(encryptedNetwork))
	if err != nil {
		t.Fatal(err)
	}
	o := newBackendConfig(t, k, network)
	o.Rules = &hostrules.Config{Network: network.NetworkConfig, Resync: time.Hour, RouteProtocol: RouteProtocol,
		Logger: slog.New(slog.DiscardHandler)}
	b, err := NewNode(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	peer := lease.Record{
		Subnets: lease.Subnets{V4: pfx("10.5.2.0/24")},
		Attrs: lease.Attrs{PublicIP: netip.MustParseAddr("192.0.2.2"), BackendType: typeWireGuard,
			BackendData: wireGuardData(wireguard.PublicKey{2}, 51820),
			Weft:        &lease.Weft{Recv: []string{RecvPlain}}},
	}
	set := lease.Set{Config: network.NetworkConfig,
		Own: lease.Record{Subnets: lease.Subnets{V4: pfx("10.5.1.0/24")}}, Peers: []lease.Record{peer}}
	for _, line := range []string{"add table inet weft", "add chain inet weft sealed-in-10.5.0.0/16",
		"add chain inet weft theirs",
		"add rule inet weft theirs jump sealed-in-10.5.0.0/16"} {
		// which nobody can replace while somebody's rule leads there
		netns.Command(t, "nft", line)
	}
	if err := b.Apply(t.Context(), set); err == nil || !strings.Contains(err.Error(), "packet") {
		t.Errorf("without rules: %v", err)
	}
	if st := b.Status(); st.InPlace || st.Up || st.MTU != 1420 || st.LastError == "" {
		t.Errorf("without rules: %+v", st)
	}
	if routes := netns.Command(t, "ip", "route", "show"); strings.Contains(routes, "10.5.") {
		t.Errorf("without rules:\n%s", routes)
	}
	netns.Command(t, "nft", "delete table inet weft")
	if err := b.Apply(t.Context(), set); err != nil {
		t.Error(err)
	}
	if routes := netns.Command(t, "ip", "route", "show"); !strings.Contains(routes, "10.5.2.0/24") ||
		!strings.Contains(routes, "10.5.0.0/16 dev flannel-wg") {
		t.Errorf("with rules:\n%s", routes)
	}
	if rules := netns.Command(t, "nft", "list", "table", "inet", "weft"); !strings.Contains(rules, "192.0.2.2") {
		t.Errorf("what peers may send in plain is not let in yet:\n%s", rules)
	}
	if got, err := kernel.ReadSetting(kernel.Conf4+"/flannel-wg", kernel.ReversePath); err != nil || got != "2" {
		t.Errorf("flannel-wg has %s, %v, and is to be loose", got, err)
	}
}

// TestRoutesOfADeviceThatIsNotHadStay: whoever has the device may carry the packets, and without its routes
// they would leave by another way, in plain.
func TestRoutesOfADeviceThatIsNotHadStay(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	const config = `{"Network":"10.5.0.0/16","Backend":{"Type":"wireguard","Userspace":"always"}}`
	first, second := openKernelBackend(t, k, config, nil), openKernelBackend(t, k, config, nil)
	defer first.Close()
	defer second.Close()
	first.apply(kernelSet(first))
	before := ip(t, "route show dev flannel-wg")
	if err := second.Apply(t.Context(), kernelSet(second)); err == nil {
		t.Error("two have one device")
	}
	if after := ip(t, "route show dev flannel-wg"); before == "" || after != before {
		t.Errorf("routes before:\n%s, after:\n%s", before, after)
	}
}
