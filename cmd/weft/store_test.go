package main

import (
	"net/netip"
	"strings"
	"testing"

	"weft/lease"
	"weft/lease/etcd"
	"weft/lease/etcd/etcdtest"
)

func TestTheStoreAnswersWhenNoDaemonDoes(t *testing.T) {
	srv := etcdtest.Start(t)
	store, err := etcd.New(etcd.Config{Endpoints: []string{srv.Endpoint()}, Prefix: "/lab"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.CreateConfig(t.Context(), []byte(`{"Network":"10.42.0.0/16"}`)); err != nil {
		t.Fatal(err)
	}
	own := lease.Subnets{V4: prefix("10.42.7.0/24")}
	attrs := lease.Attrs{PublicIP: netip.MustParseAddr("192.0.2.7"), Weft: &lease.Weft{Node: "gone"}}
	if _, err := store.Put(t.Context(), own, attrs, lease.TTL, 0); err != nil {
		t.Fatal(err)
	}

	endpoint := "--etcd-endpoints=" + srv.Endpoint()
	out, stderr, err := weft(t, "lease", "list", endpoint, "--etcd-prefix=/lab")
	if err != nil || stderr != "" || !strings.Contains(out, "10.42.7.0/24  gone") ||
		!strings.Contains(out, "23h59m") || !strings.Contains(out, "prefix /lab") {
		t.Errorf("list: %v %s\n%s", err, stderr, out)
	}

	// The same from the environment, for which a daemon is asked first.
	t.Setenv("FLANNELD_ETCD_ENDPOINTS", srv.Endpoint())
	t.Setenv("WEFTD_ETCD_PREFIX", "/lab")
	out, stderr, err = weft(t, "lease", "release", "10.42.7.0/24")
	if err != nil || !strings.Contains(out, "10.42.7.0/24") {
		t.Errorf("release: %v\n%s", err, out)
	}
	if !strings.Contains(stderr, "answers") || !strings.Contains(stderr, srv.Endpoint()) {
		t.Errorf("the fall-back is not said: %s", stderr)
	}
	if _, _, err = weft(t, "lease", "release", "10.42.7.0/24", endpoint); err == nil ||
		!strings.Contains(err.Error(), "record") {
		t.Errorf("twice: %v", err)
	}
}
