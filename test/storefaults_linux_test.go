package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

// lastingPeer is a record without a node behind it, so that nobody writes it again.
const (
	lastingPeer = "10.42.240.0/24"
	lastingKey  = prefix + "/subnets/10.42.240.0-24"
	lastingText = `{"PublicIP":"198.18.7.40","PublicIPv6":null}`
)

// faulty has packets go from the first node's pod to the second's, a thousand a second, while the store is what fault makes of it. Afterwards none may
// be missing, both nodes have what they had, without a restart, and have written it, and no alarm is left.
func faulty(t *testing.T, l *lab.Lab, records func() []pair, fault func()) {
	t.Helper()
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	reach(t, await.Patience, a, b, 4)
	before := map[*lab.Node]statusJSON{}
	for _, n := range l.Nodes() {
		before[n] = current(t, n)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	stream := endless(ctx, t, a, b)
	underWay(t, stream, 500)
	began := time.Now()
	fault()
	for _, n := range l.Nodes() {
		s := status(t, n, await.Timers, func(s statusJSON) error { // who was refused for long waits for longer
			if !s.Ready || s.Alarm != "" || s.Lease == nil || !s.Lease.Held || !s.Store.Connected || s.Store.Error != "" {
				return fmt.Errorf("ready %v %q, alarm %q, lease %+v, store %+v", s.Ready, s.NotReady, s.Alarm, s.Lease, s.Store)
			}
			return nil
		})
		if was := before[n]; s.PID != was.PID || s.Lease.Subnet != was.Lease.Subnet {
			t.Errorf("%s: pid %d, before %d; %s, before %s", n.Name, s.PID, was.PID, s.Lease.Subnet, was.Lease.Subnet)
		}
		await.OK(t, n.Name+"'s record is in the store", func() error {
			for _, kv := range records() {
				if kv.key == recordKey(n) {
					return nil
				}
			}
			return fmt.Errorf("%+v", records())
		})
	}
	knows(t, a.Node, await.Patience, b.Node.Net.V4.Masked().String(), true)
	knows(t, b.Node, await.Patience, a.Node.Net.V4.Masked().String(), true)
	took := time.Since(began)
	stop()
	r := stream.Wait()
	t.Logf("%s; %s", took.Round(time.Millisecond), r)
	if r.Lost > 0 || r.Duplicates > 0 || r.Sent == 0 {
		t.Errorf("%s, want none lost; outages %v", r, r.Outages)
	}
}

// alarmed waits until all nodes disbelieve the store, for a reason, and looks that they have their peers all the same.
func alarmed(t *testing.T, l *lab.Lab, why string) {
	t.Helper()
	for _, n := range l.Nodes() {
		s := status(t, n, await.Patience, func(s statusJSON) error {
			if !strings.Contains(s.Alarm, why) {
				return fmt.Errorf("alarm %q", s.Alarm)
			}
			return nil
		})
		t.Logf("%s: %s", n.Name, s.Alarm)
		if s.Peers != 2 {
			t.Errorf("%s has %d peers, want 2", n.Name, s.Peers)
		}
		knows(t, n, await.Patience, lastingPeer, true)
		if m, err := n.Metrics(t.Context()); err != nil || !strings.Contains(m, "\nweft_removals_disbelieved 1\n") {
			t.Errorf("the metrics of %s do not say it: %v", n.Name, err)
		}
	}
}

// TestWipedStore has etcd lose all that it has, and become another cluster, as when its disk is replaced. No peer goes for that, also none of whom the
// store will not hear again; the nodes write their records again, and say what they do not believe until it is there again.
func TestWipedStore(t *testing.T) {
	counting(t)
	l := up(t, lab.Spec{Nodes: 2, NetworkConfig: []byte(ipv4Only)})
	for range 20 { // so that what the nodes write after it went back does not come as far
		put(t, l.Store, lastingKey, lastingText, time.Hour)
	}
	for _, n := range l.Nodes() {
		knows(t, n, await.Patience, lastingPeer, true)
	}
	cluster := current(t, l.Node(1)).Store.ClusterID
	records := func() []pair { return list(t, l.Store, prefix+"/subnets/") }
	faulty(t, l, records, func() {
		d := l.Store.Daemon
		if err := errors.Join(d.Kill(), os.RemoveAll(l.Store.Dir)); err != nil {
			t.Fatal(err)
		}
		d.SetArgs(append(d.Args(), "--initial-cluster-token=another")...)
		if err := l.Store.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		alarmed(t, l, "the store is another cluster")
		put(t, l.Store, configKey, ipv4Only, 0)
		await.OK(t, "the nodes' records are written again", func() error {
			if all := records(); len(all) != 2 {
				return fmt.Errorf("%+v", all)
			}
			return nil
		})
		alarmed(t, l, "the store is another cluster")
		put(t, l.Store, lastingKey, lastingText, time.Hour)
	})
	if now := current(t, l.Node(1)).Store.ClusterID; now == cluster {
		t.Errorf("it is the same cluster, %s", now)
	}
}

// TestStoreFromASnapshot has etcd put back to a copy of its data that was made before the second node had its subnet. Nobody is removed for that, the
// second node writes its record again, and it is said that the store went back until all that it lost is there again.
func TestStoreFromASnapshot(t *testing.T) {
	counting(t)
	l := up(t, lab.Spec{Nodes: 2, NetworkConfig: []byte(ipv4Only)})
	d, second := l.Store.Daemon, l.Node(2)
	if err := errors.Join(second.Stop(t.Context())); err != nil {
		t.Fatal(lab.Explain(err))
	}
	del(t, l.Store, recordKey(second))
	saved := filepath.Join(t.TempDir(), "copy")
	if err := errors.Join(d.Kill(), os.CopyFS(saved, os.DirFS(l.Store.Dir)), l.Store.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := second.Start(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
	put(t, l.Store, lastingKey, lastingText, time.Hour)
	for _, n := range l.Nodes() {
		knows(t, n, await.Patience, lastingPeer, true)
	}
	records := func() []pair { return list(t, l.Store, prefix+"/subnets/") }
	faulty(t, l, records, func() {
		if err := errors.Join(d.Kill(), os.RemoveAll(l.Store.Dir), os.CopyFS(l.Store.Dir, os.DirFS(saved)), os.Chmod(l.Store.Dir, 0o700)); err != nil {
			t.Fatal(err)
		}
		if err := l.Store.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		alarmed(t, l, "the store went back from revision ")
		await.OK(t, "the second node's record is written again", func() error {
			if all := records(); len(all) != 2 {
				return fmt.Errorf("%+v", all)
			}
			return nil
		})
		put(t, l.Store, lastingKey, lastingText, time.Hour)
	})
}

// guarded is an etcd that asks who it is. weft's nodes are the user "node", whose role has the rights to records that may says.
type guarded struct {
	*testing.T
	store *lab.Store
	token string
}

// call calls etcd as root.
func (g *guarded) call(path string, in, out any) {
	g.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		g.Fatal(err)
	}
	req, err := http.NewRequestWithContext(await.Context(g.T, await.Patience), http.MethodPost, g.store.Endpoint()+path, strings.NewReader(string(body)))
	if err != nil {
		g.Fatal(err)
	}
	if g.token != "" {
		req.Header.Set("Authorization", g.token)
	}
	resp, err := g.store.HTTPClient().Do(req)
	if err != nil {
		g.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		g.Fatalf("%s: %s: %s %v", path, resp.Status, text, err)
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			g.Fatal(err)
		}
	}
}

// startingWith are the keys that begin with start, as etcd's calls name them.
func startingWith(start string) map[string]any {
	end := []byte(start)
	end[len(end)-1]++
	return map[string]any{"key": []byte(start), "range_end": end}
}

// may has the role's right to all that is below the prefix be READ, READWRITE or, with "", none.
func (g *guarded) may(right string) {
	g.Helper()
	where := startingWith(prefix + "/")
	if right == "" {
		where["role"] = "node"
		g.call("/v3/auth/role/revoke", where, nil)
		return
	}
	where["permType"] = right
	g.call("/v3/auth/role/grant", map[string]any{"name": "node", "perm": where}, nil)
}

func (g *guarded) records() (all []pair) {
	g.Helper()
	var got struct{ KVs []struct{ Key, Value []byte } }
	g.call("/v3/kv/range", startingWith(prefix+"/subnets/"), &got)
	for _, kv := range got.KVs {
		all = append(all, pair{string(kv.Key), string(kv.Value), 0})
	}
	return all
}

// guard has the store of a lab ask who it is, and its nodes say it.
func guard(t *testing.T, l *lab.Lab) *guarded {
	t.Helper()
	g := &guarded{T: t, store: l.Store}
	for user, role := range map[string]string{"root": "root", "node": "node"} {
		g.call("/v3/auth/user/add", map[string]any{"name": user, "password": user + "pw"}, nil)
		g.call("/v3/auth/role/add", map[string]any{"name": role}, nil)
		g.call("/v3/auth/user/grant", map[string]any{"user": user, "role": role}, nil)
	}
	g.may("READWRITE")
	g.call("/v3/auth/enable", struct{}{}, nil)
	var in struct{ Token string }
	g.call("/v3/auth/authenticate", map[string]any{"name": "root", "password": "rootpw"}, &in)
	g.token = in.Token
	for _, n := range l.Nodes() {
		n.Daemon.SetArgs(append(n.Daemon.Args(), "--etcd-username=node", "--etcd-password=nodepw")...)
		if err := n.Restart(await.Context(t, await.Patience)); err != nil {
			t.Fatal(lab.Explain(err))
		}
	}
	return g
}

// TestRightsRevokedFromNodes has the role of all nodes lose the right to write, and then to read too, and a node's record deleted meanwhile. The nodes keep
// their subnets, and say what etcd refuses and why; with the right the record is written again, and the node is a peer, without anybody's hand.
// The others' packets are not touched.
func TestRightsRevokedFromNodes(t *testing.T) {
	counting(t)
	l := up(t, lab.Spec{Nodes: 3, NetworkConfig: []byte(ipv4Only)})
	g := guard(t, l)
	third := l.Node(3)
	subnet := third.Net.V4.Masked().String()
	refused := func(what string) {
		t.Helper()
		s := status(t, third, await.Patience, func(s statusJSON) error {
			if s.Lease == nil || s.Lease.Held || !strings.Contains(s.Lease.Detail, what) || !strings.Contains(s.Lease.Detail, "permission denied") {
				return fmt.Errorf("lease %+v, store %+v", s.Lease, s.Store)
			}
			return nil
		})
		t.Logf("ready %v %q, lease %+v, store %+v", s.Ready, s.NotReady, s.Lease, s.Store)
		if s.Lease.Subnet.Masked().String() != subnet || s.Underlay.Link == "" || s.Peers != 2 {
			t.Errorf("it has %+v, %d peers", s.Lease, s.Peers)
		}
	}
	faulty(t, l, g.records, func() {
		g.may("READ")
		g.call("/v3/kv/deleterange", map[string]any{"key": []byte(recordKey(third))}, nil)
		for _, n := range l.Nodes()[:2] {
			knows(t, n, await.Patience, subnet, false)
		}
		refused("write " + subnet)
		g.may("")
		refused("read the store")
		g.may("READWRITE")
	})
	for _, n := range l.Nodes()[:2] {
		knows(t, n, await.Patience, subnet, true)
	}
}
