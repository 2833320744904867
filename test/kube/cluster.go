package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"weft/test/lab"
)

// Options describe a cluster. The zero value describes a cluster with both families and no further
// controllers.
type Options struct {
	// Controllers are those that the controller manager runs besides those for podCIDRs and service accounts.
	Controllers []string
	// APIServerArgs are appended to the API server's arguments.
	APIServerArgs []string
}

// Network4 and Network6 are the networks of which each node gets a podCIDR by default: a /24 and a /64.
const (
	Network4 = "10.244.0.0/16"
	Network6 = "fd42::/48"
)

// Cluster is a running control plane with a wire to which nodes are added.
type Cluster struct {
	// Control is the host of the control plane.
	Control *lab.Node
	// Etcd, APIServer and ControllerManager are the control plane's programs. Tests kill, pause and restart
	// them.
	Etcd, APIServer, ControllerManager *Process
	// Admin may do everything.
	Admin *kubernetes.Clientset

	lab         *lab.Lab
	dir         string
	pki         *authority
	adminConfig *rest.Config
	programs    programs // under test

	mu    sync.Mutex
	nodes []*Node
}

// Start starts a control plane, with the service account that weft uses and its ClusterRole, and takes
// everything down when the test ends. If the test has failed, it prints the ends of the logs.
func Start(t *testing.T, o Options) *Cluster {
	t.Helper()
	c := &Cluster{programs: buildPrograms(t)}
	began := time.Now()
	l, err := lab.Up(t.Context(), lab.Spec{
		Name: "kube", Nodes: 1, Driver: lab.Bare, WeftdPath: c.programs.weftd,
		ReadyTimeout: time.Minute, Progress: func(string) {},
	})
	if err != nil {
		t.Fatalf("the hosts' network (root is needed to make namespaces): %v", err)
	}
	c.lab, c.Control, c.dir = l, l.Node(1), filepath.Join(l.Spec.StateDir, "control")
	t.Cleanup(func() { c.close(t) })
	if err := c.start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Logf("control plane up after %s", time.Since(began).Round(10*time.Millisecond))
	return c
}

func (c *Cluster) start(ctx context.Context, o Options) (err error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	if c.pki, err = newAuthority(filepath.Join(c.dir, "pki")); err != nil {
		return err
	}
	if err := c.makeAdmin(); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	if err := c.startAPIServer(ctx, o); err != nil {
		return err
	}
	rules, err := Rules()
	if err != nil {
		return err
	}
	if err := c.grant(ctx, rules); err != nil {
		return err
	}
	return c.startControllerManager(ctx, o)
}

// makeAdmin makes the certificate of an administrator, who may do everything.
func (c *Cluster) makeAdmin() error {
	cert, key, err := c.pki.issue("admin", []string{"system:masters"})
	if err != nil {
		return err
	}
	c.adminConfig = c.clientConfig()
	c.adminConfig.CertData, c.adminConfig.KeyData = cert, key
	c.Admin, err = kubernetes.NewForConfig(c.ClientConfig())
	return err
}

// clientConfig returns the part of a client's configuration that is about the server.
func (c *Cluster) clientConfig() *rest.Config {
	return &rest.Config{Host: c.URL(), TLSClientConfig: rest.TLSClientConfig{CAData: c.pki.pem}, QPS: -1}
}

// ClientConfig returns the administrator's configuration, for clients in the test's own process.
func (c *Cluster) ClientConfig() *rest.Config {
	cfg := rest.CopyConfig(c.adminConfig)
	cfg.Dial = c.Control.NS.Dial
	cfg.Timeout = 30 * time.Second
	return cfg
}

// URL is that by which the nodes reach the API server.
func (c *Cluster) URL() string { return fmt.Sprintf("https://%s:%d", c.Control.Underlay4, apiPort) }

// Dir is a folder for files of the test. It is removed with the cluster.
func (c *Cluster) Dir() string { return c.dir }

// Command runs kubectl or helm as the administrator, on the control plane's host.
func (c *Cluster) Command(ctx context.Context, name string, args ...string) ([]byte, error) {
	path, err := c.program(name)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(c.dir, "admin.kubeconfig")
	if err := writeKubeconfig(kubeconfig, c.adminConfig); err != nil {
		return nil, err
	}
	home := filepath.Join(c.dir, "home")
	return c.Control.Command(ctx, "env", append([]string{"HOME=" + home, "KUBECONFIG=" + kubeconfig, path},
		args...)...)
}

// accountsExist returns nil once a namespace has its default account, which shows that the controller manager
// works.
func (c *Cluster) accountsExist(ctx context.Context) error {
	_, err := c.Admin.CoreV1().ServiceAccounts(flannelNamespace).Get(ctx, "default", metav1.GetOptions{})
	return err
}

// Restart kills a program with SIGKILL and starts it again.
func (c *Cluster) Restart(ctx context.Context, p *Process) error {
	if err := p.Kill(); err != nil {
		return err
	}
	return p.Up(ctx)
}

// Compact makes etcd forget every revision before the latest, as the API server does every five minutes.
// A watch that knows only an earlier revision cannot go on after that.
func (c *Cluster) Compact(ctx context.Context) error {
	var status struct {
		Header struct {
			Revision json.Number `json:"revision"`
		}
	}
	if err := c.etcdCall(ctx, "/v3/maintenance/status", struct{}{}, &status); err != nil {
		return err
	}
	return c.etcdCall(ctx, "/v3/kv/compaction", map[string]any{"revision": status.Header.Revision,
		"physical": true}, nil)
}

// etcdCall uses etcd's JSON gateway.
func (c *Cluster) etcdCall(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:2379"+path,
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.Control.HTTPClient().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("etcd: %s: %s: %s", path, resp.Status, text)
	case out == nil:
		return nil
	}
	return json.Unmarshal(text, out)
}

// close takes everything down. If the test has failed, it first prints the ends of the logs.
func (c *Cluster) close(t *testing.T) {
	for _, n := range c.Nodes() {
		log := n.Daemon.LogTail(1000)
		if bytes.Contains(log, []byte("DATA RACE")) || bytes.Contains(log, []byte("panic:")) {
			t.Errorf("%s's daemon:\n%s", n.Object, log)
		} else if t.Failed() {
			kernel := n.kernel(context.Background())
			t.Logf("%s's kernel:\n%.4000s\nthe end of %s's log:\n%s", n.Object, kernel, n.Object, n.Daemon.LogTail(40))
		}
		n.removePods()
	}
	for _, p := range []*Process{c.ControllerManager, c.APIServer, c.Etcd} {
		if p == nil {
			continue
		}
		if t.Failed() {
			t.Logf("the end of %s's log:\n%s", p.Name, p.LogTail(3))
		}
		_ = p.Kill() // fails if it does not run, which is what we want
	}
	c.lab.Close()
}

// Nodes returns those that were added so far; the slice is the caller's.
func (c *Cluster) Nodes() []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*Node(nil), c.nodes...)
}

// createNamespace makes a namespace unless it exists.
func (c *Cluster) createNamespace(ctx context.Context, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.Admin.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}
