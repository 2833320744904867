package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// HealthPort is the port on its node's loopback at which each weftd serves /readyz and /metrics.
const HealthPort = 8471

// weftdArgs returns the arguments of n's weftd. They give it files, sockets and addresses of its own, since
// two daemons on one machine must not share them.
func (l *Lab) weftdArgs(n *Node) []string {
	args := []string{
		"--etcd-endpoints=" + strings.Join(l.endpoints(), ","),
		"--iface=" + underlayDev,
		"--subnet-file=" + n.SubnetFile,
		"--cache-dir=" + n.CacheDir,
		"--control-socket=" + n.ControlSocket,
		"--node-id=" + n.Name,
		"--node-name=" + n.Name, // they share the machine's
		"--healthz-ip=127.0.0.1",
		fmt.Sprintf("--healthz-port=%d", n.healthPort()),
		"--log-format=text",
	}
	if l.Spec.Store == Embedded && n.Index == 1 {
		args = append(args,
			"--embedded-etcd",
			"--embedded-etcd-dir="+n.Dir+"/etcd",
			fmt.Sprintf("--embedded-etcd-listen=%s:2379", n.Underlay4),
			"--embedded-etcd-insecure", // nobody outside this machine reaches the wire
			"--net-config-path="+n.NetConfigFile,
		)
	}
	if n.user != nil {
		args = append(args, "--rootless", fmt.Sprintf("--tun-netns=%d", n.user.tun))
	}
	if l.Spec.Attach != DirectAttach {
		args = append(args, "--holder-timeout=0") // a lab's end is for good: nobody keeps its data planes' ports
	}
	return append(args, l.Spec.WeftdArgs...)
}

// endpoints returns the store's URLs as the nodes see them.
func (l *Lab) endpoints() []string {
	switch l.Spec.Store {
	case External:
		return l.Spec.Endpoints
	case Separate:
		return []string{fmt.Sprintf("http://%s:2379", underlay4(storeNumber))}
	case Embedded:
		return []string{fmt.Sprintf("http://%s:2379", underlay4(1))}
	default:
		return nil
	}
}

// WaitReady waits until the node's weftd says that it is ready, at most Spec.ReadyTimeout.
// Its error says why weftd says it is not ready, or how weftd ended, and has the end of its log.
func (n *Node) WaitReady(ctx context.Context) error {
	limit := n.lab.Spec.ReadyTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not ready after %s", limit))
	defer cancel()
	return n.Fault(n.Daemon.until(ctx, func() error { return n.Ready(ctx) }))
}

// Ready asks the node's weftd once. The error has the reason that it gives.
func (n *Node) Ready(ctx context.Context) error {
	status, body, err := n.get(ctx, fmt.Sprintf("http://127.0.0.1:%d/readyz", n.healthPort()))
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		// The first line is what flannel answers, whatever the reason.
		_, reasons, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
		return fmt.Errorf("weftd is not ready: %s",
			cmp.Or(strings.ReplaceAll(reasons, "\n", "; "), fmt.Sprintf("status %d: %s", status, body)))
	}
	if _, err := os.Stat(n.SubnetFile); err != nil {
		return fmt.Errorf("weftd is ready and has not written the subnet file: %w", err)
	}
	return nil
}

// Ask reads /v1/path from the control socket of a weftd into out.
func Ask(ctx context.Context, socket, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://weftd/v1/"+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(out)
}

// Metrics returns the text of the node's /metrics.
func (n *Node) Metrics(ctx context.Context) (string, error) {
	status, body, err := n.get(ctx, fmt.Sprintf("http://127.0.0.1:%d/metrics", n.healthPort()))
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: /metrics: status %d", n.Name, status)
	}
	return string(body), err
}
