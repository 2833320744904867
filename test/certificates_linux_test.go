package test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weft/lease/atomicfile"
	"weft/lease/etcd/etcdtest"
	"weft/test/await"
	"weft/test/lab"
)

// tlsFront speaks TLS to the store's clients, asks for their certificates, and hands on to the store what they say.
type tlsFront struct {
	store   *lab.Store
	l       net.Listener
	clients *x509.CertPool
	wg      sync.WaitGroup

	mu     sync.Mutex // protects what follows
	mine   tls.Certificate
	client string // who was let in last
	conns  []net.Conn
}

const tlsPort = 12380

// inFront puts one before the store, on its host. The certificate is in those files.
func inFront(t *testing.T, s *lab.Store, ca *etcdtest.CA, cert, key string) *tlsFront {
	t.Helper()
	f := &tlsFront{store: s, clients: x509.NewCertPool()}
	pem, err := os.ReadFile(ca.File)
	if err != nil || !f.clients.AppendCertsFromPEM(pem) {
		t.Fatal(err)
	}
	f.shows(t, cert, key)
	if err := s.Do(func() (err error) {
		f.l, err = net.Listen("tcp", fmt.Sprintf("%s:%d", s.Addr, tlsPort))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = f.l.Close()
		f.cut()
		f.wg.Wait()
	})
	f.wg.Go(f.accept)
	return f
}

// shows has the next client see that certificate.
func (f *tlsFront) shows(t *testing.T, cert, key string) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mine = pair
}

// cut ends all connections, as a store that starts again does.
func (f *tlsFront) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns, f.client = nil, ""
}

// letIn is the name in the certificate of the client that was let in last, since the last cut.
func (f *tlsFront) letIn() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.client
}

func (f *tlsFront) accept() {
	for {
		c, err := f.l.Accept()
		if err != nil {
			return
		}
		f.wg.Go(func() { f.serve(c) })
	}
}

func (f *tlsFront) serve(raw net.Conn) {
	defer raw.Close()
	f.mu.Lock()
	mine := f.mine
	f.conns = append(f.conns, raw)
	f.mu.Unlock()
	c := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{mine}, NextProtos: []string{"h2"},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: f.clients})
	if c.Handshake() != nil {
		return
	}
	var to net.Conn
	if err := f.store.Do(func() (err error) {
		to, err = net.Dial("tcp", fmt.Sprintf("%s:2379", f.store.Addr))
		return err
	}); err != nil {
		return
	}
	defer to.Close()
	f.mu.Lock()
	f.client = c.ConnectionState().PeerCertificates[0].Subject.CommonName
	f.conns = append(f.conns, to)
	f.mu.Unlock()
	f.wg.Go(func() {
		_, _ = io.Copy(to, c)
		_ = to.Close()
	})
	_, _ = io.Copy(c, to)
}

// TestCertificatesExpireWhileItRuns: the certificate by which a node is known to the store ends while its connection is there, and so does the
// store's own. The connection in use goes on; one that is made after that is refused, which is said with whose certificate it is;
// packets, peers and the lease do not care; and a new certificate on disk, or at the store, is taken up by itself.
func TestCertificatesExpireWhileItRuns(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{Nodes: 2, NetworkConfig: []byte(ipv4Only)})
	n, other := l.Node(1), l.Node(2)
	ca := etcdtest.NewCA(t)
	at := net.IP(l.Store.Addr.AsSlice())
	serverCert, serverKey := ca.LeafAt("the store", at)
	front := inFront(t, l.Store, ca, serverCert, serverKey)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key")
	install := func(c, k string) {
		t.Helper()
		for from, to := range map[string]string{k: key, c: cert} {
			b, err := os.ReadFile(from)
			if err == nil {
				err = atomicfile.Write(to, b)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	install(ca.LeafAt("first", at))
	n.Daemon.SetArgs(append(n.Daemon.Args(), fmt.Sprintf("--etcd-endpoints=https://%s:%d", l.Store.Addr, tlsPort),
		"--etcd-cafile="+ca.File, "--etcd-certfile="+cert, "--etcd-keyfile="+key)...)
	if err := n.Restart(await.Context(t, await.Patience)); err != nil {
		t.Fatal(lab.Explain(err))
	}
	before := current(t, n)
	known := func(name string) {
		t.Helper()
		await.OK(t, "the node is let in as "+name, func() error {
			if got := front.letIn(); got != name {
				return fmt.Errorf("let in: %q", got)
			}
			return nil
		})
	}
	written := 0
	write := func() (subnet string) {
		t.Helper()
		written++
		subnet = fmt.Sprintf("10.42.%d.0", 240+written)
		put(t, l.Store, prefix+"/subnets/"+subnet+"-24", `{"PublicIP":"198.18.0.250","PublicIPv6":null}`, time.Hour)
		return subnet + "/24"
	}
	goesOn := func() {
		t.Helper()
		reach(t, await.Patience, n.Pods[0], other.Pods[0], 4)
		reach(t, await.Patience, other.Pods[0], n.Pods[0], 4)
		s := current(t, n)
		if s.PID != before.PID || !s.Ready || s.Lease == nil || !s.Lease.Held || s.Lease.Subnet != before.Lease.Subnet || s.Peers < 1 {
			t.Errorf("pid %d, ready %v %q, lease %+v, %d peers", s.PID, s.Ready, s.NotReady, s.Lease, s.Peers)
		}
	}
	refused := func(why string) {
		t.Helper()
		s := status(t, n, 2*await.Patience, func(s statusJSON) error {
			if s.Store.Connected || !strings.Contains(s.Store.Error, why) {
				return fmt.Errorf("connected %v, %q", s.Store.Connected, s.Store.Error)
			}
			return nil
		})
		t.Logf("it says: %s", s.Store.Error)
		goesOn()
	}
	known("first")

	ends := time.Now().Add(20 * time.Second).Truncate(time.Second) // time to be let in, and less than Patience
	install(ca.LeafUntil("short", ends, at))
	front.cut()
	known("short")
	await.OK(t, "the certificate ends", func() error {
		if left := time.Until(ends.Add(2 * time.Second)); left > 0 {
			return fmt.Errorf("it is good for %s", left)
		}
		return nil
	})
	knows(t, n, await.Patience, write(), true) // by the connection that is there
	goesOn()
	front.cut()
	refused(cert)
	missed := write()
	install(ca.LeafAt("renewed", at))
	knows(t, n, 2*await.Patience, missed, true)
	known("renewed")

	oldCert, oldKey := ca.LeafUntil("the store that was", time.Now().Add(-time.Minute), at)
	front.shows(t, oldCert, oldKey)
	front.cut()
	refused("20")
	missed = write()
	front.shows(t, serverCert, serverKey)
	knows(t, n, 2*await.Patience, missed, true)
	goesOn()
	status(t, n, await.Patience, func(s statusJSON) error {
		if !s.Store.Connected || s.Store.Error != "" {
			return errors.New(s.Store.Error)
		}
		return nil
	})
}
