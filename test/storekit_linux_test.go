package test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

// slowRelay stands between nodes and their store, and hands on what either says after a delay.
type slowRelay struct {
	to    string
	ns    *lab.Host
	delay atomic.Int64 // nanoseconds, each way
	l     net.Listener
	wg    sync.WaitGroup
	mu    sync.Mutex
	conns []net.Conn
}

// relayPort is where the relay listens, on the store's host.
const relayPort = 12379

// relayTo has the store's clients from now on connected by way of a relay.
func relayTo(t *testing.T, s *lab.Store) *slowRelay {
	t.Helper()
	r := &slowRelay{to: fmt.Sprintf("%s:2379", s.Addr), ns: s.Host}
	if err := s.Do(func() (err error) {
		r.l, err = net.Listen("tcp", fmt.Sprintf("%s:%d", s.Addr, relayPort))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	r.wg.Go(r.accept)
	if _, err := s.Command(t.Context(), "nft", fmt.Sprintf(`add table ip relay; add chain ip relay in { type nat hook prerouting priority -100; };
		add rule ip relay in iifname "eth0" tcp dport 2379 redirect to :%d`, relayPort)); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *slowRelay) close() {
	_ = r.l.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

func (r *slowRelay) accept() {
	for {
		from, err := r.l.Accept()
		if err != nil {
			return
		}
		var to net.Conn
		if err := r.ns.Do(func() (err error) {
			to, err = net.Dial("tcp", r.to)
			return err
		}); err != nil {
			_ = from.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, from, to)
		r.mu.Unlock()
		r.wg.Go(func() { r.hand(from, to) })
		r.wg.Go(func() { r.hand(to, from) })
	}
}

// piece is what was read at once, and when it is to be written.
type piece struct {
	due  time.Time
	data []byte
}

// hand hands on what one end says. Order is kept, and as much is under way as is said within the delay.
func (r *slowRelay) hand(from, to net.Conn) {
	pieces := make(chan piece, 4096)
	r.wg.Go(func() {
		defer to.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.data); err != nil {
				_ = from.Close() // and so the reader ends
			}
		}
	})
	defer close(pieces)
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			pieces <- piece{time.Now().Add(time.Duration(r.delay.Load())), append([]byte(nil), b[:n]...)}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				_ = to.Close()
			}
			return
		}
	}
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
	if err := etcdAs(g, g.store, g.token, path, in, out); err != nil {
		g.Fatal(err)
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
