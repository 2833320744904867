package keeper_test

import (
	"testing"
	"testing/synctest"
	"time"

	"weft/lease"
	"weft/lease/leasetest"
)

// In etcd a flanneld writes the whole value, with its first renewal at the latest: what weft said of the
// node, above all which datagrams it takes, is gone with that.
func TestAFlanneldReplacesTheWholeValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.New("c", []byte(network))
		b := leasetest.Record(t, "10.244.5.0/24", "b", "192.0.2.2", 0)
		b.Weft.Recv = []string{"gso", "pcsum", "pack"}
		if _, err := s.Put(t.Context(), b.Subnets, b.Attrs, lease.TTL, 0); err != nil {
			t.Fatal(err)
		}
		var last lease.Set
		o := options(t, "a", "192.0.2.1")
		o.Publish = func(set lease.Set) { last = set }
		k := newKeeper(t, s, o)
		stop := run(k)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(last.Peers) != 1 || last.Peers[0].Weft == nil || len(last.Peers[0].Weft.Recv) != 3 {
			t.Fatalf("peers %+v", last.Peers)
		}
		s.PutRaw("10.244.5.0-24", []byte(`{"PublicIP":"192.0.2.2","PublicIPv6":null,"BackendType":""}`), lease.TTL)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(last.Peers) != 1 || last.Peers[0].Weft != nil {
			t.Errorf("peers %+v", last.Peers)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
