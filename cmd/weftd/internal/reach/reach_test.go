package reach

import (
	"net/netip"
	"slices"
	"testing"

	"weft/lease"
)

func TestEndpoints(t *testing.T) {
	endpoints := []string{"http://192.0.2.1:2379", "https://etcd.example:2379", "http://[2001:db8::1]:2379",
		"unix:///run/etcd.sock",
		"192.0.2.2:2379", "[::ffff:192.0.2.3]:2379", "other.example:2379", "http://%zz"}
	if got, want := Hosts(endpoints), []string{"192.0.2.1", "etcd.example", "2001:db8::1", "192.0.2.2",
		"::ffff:192.0.2.3", "other.example"}; !slices.Equal(got, want) {
		t.Errorf("hosts %q, want %q", got, want)
	}
	if got, want := Names(endpoints), []string{"etcd.example", "other.example"}; !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
	want := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"),
		netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")}
	if got := Literals(endpoints); !slices.Equal(got, want) {
		t.Errorf("literals %v, want %v", got, want)
	}
	if got := Addrs(t.Context(), []string{"http://192.0.2.1:2379", "http://localhost:2379"}); len(got) < 2 ||
		got[0] != want[0] || !got[1].IsLoopback() {
		t.Errorf("addresses %v", got)
	}
}

func TestAStoreElsewhereIsNotCutOff(t *testing.T) {
	network, err := lease.ParseNetworkConfig([]byte(`{"Network":"10.42.0.0/16"}`))
	if err != nil {
		t.Fatal(err)
	}
	if why, err := Store(network, "the store", []netip.Addr{netip.MustParseAddr("192.0.2.1"), {}}); why != "" ||
		err != nil {
		t.Errorf("%q, %v", why, err)
	}
}
