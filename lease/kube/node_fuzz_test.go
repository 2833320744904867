package kube

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft/lease"
	"weft/lease/belief"
)

// FuzzNode gives a whole Node of a stranger to what the watch keeps: it becomes a peer, or is
// refused under its name, and another peer stays.
func FuzzNode(f *testing.F) {
	f.Add("10.244.2.0/24", "", "true", "192.0.2.2", `{"VNI":1}`, "")
	f.Add("fd00:244::/64", "10.244.2.0/24", "true", "192.0.2.2", "null", `{"Node":"x"}`)
	f.Add("10.244.9.0/24", "10.244.9.0/24", "true", "192.0.2.9", "", `{"Node":"a","Addrs":["::1"]}`)
	f.Add("0.0.0.0/0", "::/0", "true", "0.0.0.0", "{}", "null")
	f.Add("", "", "", "", "", "")
	cfg, err := lease.ParseNetworkConfig([]byte(dualConfig))
	if err != nil {
		f.Fatal(err)
	}
	k, err := newKeys("")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, cidr, cidr2, mark, public, data, weft string) {
		s := newTable(k, cfg, "a", func() {}, func(news) {})
		good := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "good", UID: "v",
			CreationTimestamp: metav1.Unix(1700000000, 0),
			Annotations:       map[string]string{k.managed: "true", k.public: "192.0.2.9"}}}
		good.Spec.PodCIDRs = []string{"10.244.9.0/24"}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Annotations: map[string]string{
			k.managed: mark, k.public: public, k.data: data, k.weft: weft,
		}}}
		n.Spec.PodCIDRs = []string{cidr, cidr2}
		if err := s.Replace([]any{good, n}, "7"); err != nil {
			t.Fatal(err)
		}
		before := []lease.Record{s.byName["good"].Record}
		if before[0].Created != 1700000000 || s.byName["n"].Created != 0 {
			t.Fatalf("made at %d and %d", before[0].Created, s.byName["n"].Created)
		}
		v := s.read()
		records, bad := v.records("a")
		if len(records)+len(bad) > 2 {
			t.Fatalf("%d records and %d bad", len(records), len(bad))
		}
		kept, twice := single(records, lease.Subnets{}, v.claims(before, nil), func(string) bool { return false })
		rules := belief.Rules{Config: cfg, Self: lease.Self{Node: "a", PublicIP: netip.MustParseAddr("192.0.2.1")},
			AnyLength: true}
		peers, rejected := rules.Check(kept, before)
		ours := false
		for _, p := range peers {
			ours = ours || p.Kube.Name == "good"
			if _, err := lease.ParseKey(p.Key()); err != nil {
				t.Fatalf("peer with subnets %s", p.Subnets)
			}
		}
		if !ours {
			t.Fatalf("a stranger put a peer out: %v %v %v", peers, rejected, twice)
		}
		if got := len(peers) + len(rejected) + len(twice) + len(bad); mark == "true" && got != 2 ||
			mark != "true" && got != 1 {
			t.Fatalf("%d accounted for", got)
		}
	})
}
