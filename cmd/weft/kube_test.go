package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
)

// kubeNode answers as a weftd in a Kubernetes cluster would.
type kubeNode struct{ node }

func (n *kubeNode) Status() control.Status {
	s := n.node.Status()
	s.NodeID, s.Alarm = "worker-1", ""
	s.Lease.Expires, s.Lease.Held = time.Time{}, false
	s.Store = control.Store{Kind: control.KindKubernetes, Endpoints: []string{"https://10.96.0.1:443"},
		Prefix: "flannel.alpha.coreos.com", LastSeen: s.Store.LastSeen, Error: "connection refused"}
	return s
}

func (n *kubeNode) Leases(ctx context.Context) (control.Leases, error) {
	l, err := n.node.Leases(ctx)
	for i, name := range []string{"worker-1", "worker-2", "flannel-node"} {
		r := &l.Leases[i]
		r.Node, r.Name, r.Revision, r.Reservation, r.Expires = name, name, 0, false, time.Time{}
	}
	l.Rejected[0].Key = "worker-4"
	return l, err
}

func TestKubernetesInItsOwnWords(t *testing.T) {
	socket := start(t, &kubeNode{})
	for args, want := range map[string][]string{
		"status": {"confirmed", "flannel.alpha.coreos.com", "10.42.1.0/24"},
		"lease list": {"SUBNET                     NODE          PUBLIC IP              BACKEND\n", "10.42.1.0/24",
			"10.42.3.0/24               flannel-node  10.0.0.3               vxlan\n",
			"worker-4      outside_network"},
	} {
		out, stderr, err := weft(t, append(strings.Fields(args), "--control-socket", socket)...)
		if err != nil || stderr != "" {
			t.Fatalf("%s: %v %s", args, err, stderr)
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%q is not in:\n%s", w, out)
			}
		}
	}
}

// In a cluster, without a daemon, there is no store that weft could ask instead.
func TestLeasesOfAClusterAreKubectls(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("WEFTD_CONTROL_SOCKET", filepath.Join(dir, "none.sock"))
	t.Setenv("WEFTD_CACHE_DIR", dir)
	refused := func(how string) {
		t.Helper()
		for _, args := range [][]string{{"lease", "list"}, {"lease", "release", "10.42.2.0/24"}} {
			if _, stderr, err := weft(t, args...); err == nil || !strings.Contains(err.Error(), "kubectl") ||
				strings.Contains(stderr, "etcd") {
				t.Errorf("%s, %v: %v %s", how, args, err, stderr)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "kube-node.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("left behind")
	t.Setenv("FLANNELD_KUBE_SUBNET_MGR", "false")
	if _, _, err := weft(t, "lease", "list"); err == nil || strings.Contains(err.Error(), "kubectl") {
		t.Errorf("the variable does not win: %v", err)
	}
	t.Setenv("WEFTD_KUBE_SUBNET_MGR", "true")
	refused("by variable")
}
