package kube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weft/test/lab"
)

const (
	apiPort = 6443
	// flannelNamespace and flannelAccount are the namespace and the service account of the pods in flannel's
	// manifest.
	flannelNamespace = "kube-flannel"
	flannelAccount   = "flannel"
)

// Process is one program of the control plane: its Daemon can be stopped, killed and paused.
type Process struct {
	*lab.Daemon
	health func(context.Context) error // returns nil if the program serves
}

// Up starts the program and waits until it serves, at most a minute.
func (p *Process) Up(ctx context.Context) error {
	if err := p.Start(); err != nil {
		return err
	}
	return p.WaitHealthy(ctx)
}

// WaitHealthy waits until the program serves, at most a minute.
func (p *Process) WaitHealthy(ctx context.Context) error {
	const limit = time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it does not serve after %s", limit))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.health(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.Exited():
			return fmt.Errorf("%s ended: %w\n%s", p.Name, errors.Join(p.ExitError()), p.LogTail(20))
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w\n%s", p.Name, context.Cause(ctx), err, p.LogTail(20))
		}
	}
}

// program returns the path of a part of the control plane: a link to cmd/controlplane under the part's name.
func (c *Cluster) program(name string) (string, error) {
	bundle, err := filepath.Abs(filepath.Join("bin", "controlplane"))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(bundle); err != nil {
		return "", fmt.Errorf("%w: make test-kube builds it, in some minutes", err)
	}
	link := filepath.Join(c.dir, name)
	if err := os.Symlink(bundle, link); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return link, nil
}

func (c *Cluster) daemon(name string, args ...string) (*lab.Daemon, error) {
	path, err := c.program(name)
	if err != nil {
		return nil, err
	}
	return lab.NewDaemon(c.Control.Host, name, filepath.Join(c.dir, name+".log"), path, args...), nil
}

// startEtcd starts the API server's store.
func (c *Cluster) startEtcd(ctx context.Context) error {
	const client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	d, err := c.daemon("etcd", "--name=test", "--data-dir="+filepath.Join(c.dir, "etcd-data"),
		"--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer, "--initial-cluster=test="+peer)
	if err != nil {
		return err
	}
	c.Etcd = &Process{d, func(ctx context.Context) error {
		return c.etcdCall(ctx, "/v3/maintenance/status", struct{}{}, nil)
	}}
	return c.Etcd.Up(ctx)
}

func (c *Cluster) startAPIServer(ctx context.Context, o Options) error {
	pki := c.pki
	if _, _, err := pki.issue("apiserver", nil, c.Control.Underlay4, c.Control.Underlay6,
		netip.MustParseAddr("127.0.0.1")); err != nil {
		return err
	}
	if _, _, err := pki.issue("service-accounts", nil); err != nil {
		return err
	}
	d, err := c.daemon("kube-apiserver", append([]string{
		"--etcd-servers=http://127.0.0.1:2379",
		fmt.Sprintf("--secure-port=%d", apiPort),
		"--advertise-address=" + c.Control.Underlay4.String(),
		"--tls-cert-file=" + pki.file("apiserver.crt"), "--tls-private-key-file=" + pki.file("apiserver.key"),
		"--client-ca-file=" + pki.file("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pki.file("service-accounts.key"),
		"--service-account-signing-key-file=" + pki.file("service-accounts.key"),
		"--service-cluster-ip-range=10.96.0.0/16,fd96::/108",
		"--authorization-mode=RBAC", "--allow-privileged=true", "--profiling=false",
	}, o.APIServerArgs...)...)
	if err != nil {
		return err
	}
	c.APIServer = &Process{d, func(ctx context.Context) error {
		return c.Admin.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}}
	return c.APIServer.Up(ctx)
}

// startControllerManager starts the controllers that the tests need; the others would only use the processor.
func (c *Cluster) startControllerManager(ctx context.Context, o Options) error {
	kubeconfig := filepath.Join(c.dir, "controller-manager.kubeconfig")
	if err := writeKubeconfig(kubeconfig, c.adminConfig); err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0", "--profiling=false",
		"--service-cluster-ip-range=10.96.0.0/16,fd96::/108",
		"--allocate-node-cidrs", "--cluster-cidr=" + strings.Join([]string{Network4, Network6}, ","),
		"--controllers=" + strings.Join(append([]string{"node-ipam-controller", "serviceaccount-controller"},
			o.Controllers...), ","),
	}
	d, err := c.daemon("kube-controller-manager", args...)
	if err != nil {
		return err
	}
	c.ControllerManager = &Process{d, c.accountsExist}
	return c.ControllerManager.Up(ctx)
}
