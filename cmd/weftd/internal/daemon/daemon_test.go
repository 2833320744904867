package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/options"
	"weft/lease"
	"weft/lease/belief"
	"weft/lease/etcd"
	"weft/lease/subnetenv"
	"weft/routing"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func parse(t *testing.T, text string) routing.Network {
	t.Helper()
	c, err := routing.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPublishKeepsTheLatestSet(t *testing.T) {
	g := &overlay{sets: make(chan lease.Set, 1)}
	for _, alarm := range []string{"1", "2", "3"} {
		g.publish(lease.Set{Alarm: alarm})
	}
	if s := <-g.sets; s.Alarm != "3" {
		t.Errorf("got set %s", s.Alarm)
	}
}

func TestSubnetFileIsFlannels(t *testing.T) {
	own := lease.Subnets{V4: netip.MustParsePrefix("10.42.7.0/24"), V6: netip.MustParsePrefix("fd00:7::/64")}
	p := netip.MustParsePrefix
	for _, tt := range []struct {
		name, config string
		want         subnetenv.File
	}{
		{"IPv4", `{"Network":"10.42.0.0/16"}`, subnetenv.File{Networks: []netip.Prefix{p("10.42.0.0/16")},
			Subnet: p("10.42.7.1/24"), MTU: 1472, IPMasq: true}},
		{"both", `{"Network":"10.42.0.0/16","EnableIPv6":true,"IPv6Network":"fd00::/16"}`,
			subnetenv.File{Networks: []netip.Prefix{p("10.42.0.0/16")}, Subnet: p("10.42.7.1/24"),
				IPv6Networks: []netip.Prefix{p("fd00::/16")}, IPv6Subnet: p("fd00:7::1/64"), MTU: 1472, IPMasq: true}},
		{"IPv6", `{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00::/16"}`,
			subnetenv.File{IPv6Networks: []netip.Prefix{p("fd00::/16")}, IPv6Subnet: p("fd00:7::1/64"), MTU: 1472,
				IPMasq: true}},
	} {
		if got := subnetFile(parse(t, tt.config).NetworkConfig, own, 1472, true); !got.Equal(tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestPreviousSubnetIsThatOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "subnet.env")
	if got := previous(path, discard()); !got.Equal(subnetenv.File{}) {
		t.Errorf("without a file: %v", got)
	}
	if err := os.WriteFile(path,
		[]byte(
			"FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.7.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if got := previous(path, discard()); got.Subnet != netip.MustParsePrefix("10.42.7.0/24") ||
		got.IPv6Subnet.IsValid() {
		t.Errorf("got %v", got)
	} else {
		if f := former(got, parse(t, `{"Network":"10.42.0.0/16"}`).NetworkConfig); len(f) != 0 {
			t.Errorf("the same network is no former one: %v", f)
		}
		if f := former(got, parse(t, `{"Network":"10.43.0.0/16"}`).NetworkConfig); len(f) != 1 ||
			f[0] != netip.MustParsePrefix("10.42.0.0/16") {
			t.Errorf("former networks %v", f)
		}
	}
	if err := os.WriteFile(path, []byte("FLANNEL_SUBNET=nonsense\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := previous(path, discard()); !got.Equal(subnetenv.File{}) {
		t.Errorf("from nonsense: %v", got)
	}
}

func TestOnlyAUsableLastStateIsUsed(t *testing.T) {
	store, err := etcd.New(etcd.Config{Endpoints: []string{"http://127.0.0.1:2379"}, Prefix: "/p",
		Logger: discard()})
	if err != nil {
		t.Fatal(err)
	}
	src := &etcdSource{id: "a", store: store}
	src.cfg.Store.Prefix = "/p"
	record := func(node string) lease.Record {
		return lease.Record{
			Subnets: lease.Subnets{V4: netip.MustParsePrefix("10.42.7.0/24")},
			Attrs:   lease.Attrs{PublicIP: netip.MustParseAddr("192.0.2.7"), Weft: &lease.Weft{Node: node}},
		}
	}
	for _, tt := range []struct {
		name, config string
		own          lease.Record
		want         bool
	}{
		{"ours", `{"Network":"10.42.0.0/16"}`, record("a"), true},
		{"without a lease", `{"Network":"10.42.0.0/16"}`, lease.Record{}, false},
		{"another node's", `{"Network":"10.42.0.0/16"}`, record("b"), false},
		{"a backend that this build has not", `{"Network":"10.42.0.0/16","Backend":{"Type":"ipsec"}}`,
			record("a"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			saved := belief.Cached{Own: tt.own, Memory: belief.Memory{ClusterID: "c", Revision: 1,
				Config: []byte(tt.config)}}
			if _, err := belief.NewCache(dir, "/p").Save(saved); err != nil {
				t.Fatal(err)
			}
			f, cached := openLastGood(dir, src, discard()).read()
			if (cached != nil) != tt.want || tt.want &&
				(f.node != "a" || f.config.Network != netip.MustParsePrefix("10.42.0.0/16")) {
				t.Errorf("got %v %+v", cached, f)
			}
		})
	}
	if _, cached := openLastGood(t.TempDir(), src, discard()).read(); cached != nil {
		t.Error("a state out of nothing")
	}
}

func TestPauseEndsWithItsContext(t *testing.T) {
	if !pause(t.Context(), time.Nanosecond) {
		t.Error("time is up")
	}
	done := make(chan bool)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- pause(ctx, time.Hour) }() // waited for below
	cancel()
	if <-done {
		t.Error("the context has ended")
	}
}

func TestSeedIsReadAndCheckedAtStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "net.json")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := options.Config{NetConfigPath: path}
	if b, err := loadSeed(cfg); b != nil || err != nil {
		t.Errorf("not asked for: %q %v", b, err)
	}
	cfg.NetConfigGiven = true
	for text, fault := range map[string]string{`{"Network":"10.42.0.0/16"}`: "", `{`: path,
		`{"Network":"10.42.0.0/16","Backend":{}}`:               "Backend",
		`{"Network":"10.42.0.0/16","Backend":{"Type":"ipsec"}}`: "ipsec"} {
		write(text)
		b, err := loadSeed(cfg)
		if fault == "" && (err != nil || string(b) != text) ||
			fault != "" && (err == nil || !strings.Contains(err.Error(), fault)) {
			t.Errorf("%s: %q %v", text, b, err)
		}
	}
}

func TestTheStartSaysWhetherTheStoreAnswers(t *testing.T) {
	d := &Daemon{}
	up := func() bool { return storeStatus(d.standing.read().heard, control.Store{}).Connected }
	if up() {
		t.Error("up before it was asked")
	}
	d.asked(nil) // it has no network configuration, but it answers
	if !up() {
		t.Error("not up, though it answers")
	}
	d.asked(errors.New("gone"))
	if up() || d.standing.read().heard.StoreSeen.IsZero() {
		t.Error("up, though it is gone, or forgotten that it was there")
	}
}

func TestOnlyTheConfigurationInUseIsSeeded(t *testing.T) {
	inUse := parse(t, `{"Network":"10.42.0.0/16"}`)
	for seed, want := range map[string]bool{
		"":                              false,
		`{"network" : "10.42.0.0/16" }`: true,
		`{"Network":"10.43.0.0/16"}`:    false,
		`{"Network":"10.42.0.0/16","SubnetLen":26}`: false,
	} {
		src := &etcdSource{log: discard()}
		if seed != "" {
			src.seed = []byte(seed)
		}
		if got := src.seedFor(inUse.NetworkConfig); (got != nil) != want {
			t.Errorf("%s: got %q", seed, got)
		}
	}
}
