package etcd_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"weft/lease"
	"weft/lease/etcd/etcdtest"
	"weft/test/await"
)

func question(to, from string) lease.Message {
	return lease.Message{To: to, From: from, Node: "a", Asks: true, Subnets: "10.5.1.0-24", Revision: 7}
}

// TestMessages: what one process leaves for an identity, those that run under it hear, whether they listen
// already or not, over a restart of etcd, and nobody else. It lies outside of what flannel reads, and not for
// long.
func TestMessages(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s := newStore(t, srv.Endpoint())
	var mu sync.Mutex
	heard := map[string][]lease.Message{}
	listen := func(name, node string) {
		go func() { // ends with the test's context
			_ = s.Listen(t.Context(), node, func(m lease.Message) {
				mu.Lock()
				defer mu.Unlock()
				heard[name] = append(heard[name], m)
			})
		}()
	}
	hears := func(name string, want ...lease.Message) {
		t.Helper()
		await.True(t, name+" hears", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Equal(heard[name], want)
		})
	}
	tell := func(m lease.Message) {
		t.Helper()
		if err := s.Tell(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	one, two, other := question("b", "p1"), question("b", "p2"), question("bc", "p1")
	tell(one)
	listen("early", "b")
	listen("other", "bc")
	hears("early", one)
	tell(two)
	tell(other)
	hears("early", one, two)
	hears("other", other)
	// in another's name
	rawPut(t, srv, "/coreos.com/network/weft/mail/b/p3", `{"From":"p4","Node":"a","Asks":true}`)
	rawPut(t, srv, "/coreos.com/network/weft/mail/b/p5", strings.Repeat("x", 1<<20))
	srv.Kill()
	srv.Start()
	three := question("b", "p6")
	tell(three)
	hears("early", one, two, three)
	listen("late", "b")
	hears("late", one, two, three)

	snap, err := s.Snapshot(t.Context())
	if err != nil || len(snap.Records) != 0 || len(snap.Bad) != 0 {
		t.Errorf("%+v, %v: want no record", snap, err)
	}
	resp, err := srv.Client().Get(t.Context(), "/coreos.com/network/weft/mail/b/p1", clientv3.WithPrefix())
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatal(resp, err)
	}
	if ttl, err := srv.Client().TimeToLive(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease)); err != nil ||
		ttl.TTL <= 0 || ttl.GrantedTTL > 60 {
		t.Errorf("%+v, %v: want a short life", ttl, err)
	}
}
