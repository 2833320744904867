package check

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"weft/cmd/internal/doctor"
	"weft/cmd/internal/options"
	"weft/cmd/weftd/internal/kubemode"
	"weft/cmd/weftd/internal/rootless"
	"weft/lease"
	"weft/lease/kube"
	"weft/routing"
)

// network returns the configuration with which weftd would start, the zero one if it is not known, and says
// what doctor does not: what is wrong with a file that only a store without one would be given, and whether a
// start on this host would go on with the last good configuration.
func (r *report) network(cfg options.Config, n doctor.Network) routing.Network {
	if cfg.NetConfigGiven && n.From != doctor.FileSource+cfg.NetConfigPath {
		b, err := os.ReadFile(cfg.NetConfigPath)
		if err == nil {
			_, err = routing.Parse(b)
		}
		if err != nil {
			r.fault(fmt.Errorf("--net-config-path %s: %w", cfg.NetConfigPath, err))
		}
	}
	if n.Err != nil || len(n.Networks()) == 0 {
		return routing.Network{NetworkConfig: lease.NetworkConfig{EnableIPv4: true}} // flannel's default families
	}
	if !n.HasLast() || n.Last.Equal(n.NetworkConfig) {
		return n.Network
	}
	if err := n.Contains(n.Own); err != nil && !cfg.Renumber {
		r.fault(fmt.Errorf("a start would go on with the last good network config: %w", err))
	} else if why := n.Unfit(n.Own); why != "" {
		r.remark("network-config: this node would get another subnet than %s, and its pods would be cut off: %s",
			n.Own, why)
	}
	return n.Network
}

// kube checks how weftd would reach the API server and which Node would be ours, and returns the
// endpoints that the overlay could cut off. It sends no request.
func (r *report) kube(cfg options.Config) []string {
	client, err := kube.New(kubemode.Client(cfg, slog.New(slog.DiscardHandler)))
	r.fault(err)
	switch k := cfg.Kube; {
	case k.NodeName != "":
		r.remark("node: %s (env NODE_NAME)", k.NodeName)
	case k.PodName != "" && k.PodNamespace != "":
		r.remark("node: that of the pod %s/%s (env POD_NAMESPACE, POD_NAME)", k.PodNamespace, k.PodName)
	}
	if cfg.NodeID != "" {
		_, _, bad := lease.LoadIdentity(lease.IdentityOptions{Given: cfg.NodeID})
		r.fault(bad)
		r.remark("node id: %s (--node-id), not the node's name", cfg.NodeID)
	}
	if file, err := kubemode.ReadNetwork(cfg.NetConfigPath); err == nil && len(file.Ignored) > 0 {
		r.remark("network-config: %s have no effect: the cluster gives out subnets",
			strings.Join(file.Ignored, ", "))
	}
	if err != nil {
		return nil
	}
	defer func() { _ = client.Close() }() // nothing was sent
	r.remark("API server: %s", strings.Join(client.Endpoints(), " "))
	return kubemode.Routed(cfg, client)
}

// askTimeout bounds the one question to the API server.
const askTimeout = 5 * time.Second

// askKube looks our Node up as weftd would when it starts.
func (r *report) askKube(ctx context.Context, cfg options.Config, network routing.Network) {
	if cfg.Offline {
		return
	}
	client, err := kube.New(kubemode.Client(cfg, slog.New(slog.DiscardHandler)))
	if err != nil {
		return // a fault that has been found already
	}
	defer func() { _ = client.Close() }() // nothing was written
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	n, err := client.Node(ctx)
	switch {
	case err != nil:
		r.fault(fmt.Errorf("the API server does not tell about our Node: %w (--offline checks without it)", err))
	case n.Subnets == lease.Subnets{}:
		r.fault(fmt.Errorf("the Node %s has no usable podCIDR: a start would wait", n.Name))
	default:
		r.remark("API server: the Node %s has %s", n.Name, n.Subnets)
		r.fault(network.Contains(n.Subnets))
	}
}

// place checks whether weftd would get to the network namespace of the TUN, by making one there for a moment,
// and whether the backend works between two namespaces.
func (r *report) place(cfg options.Config, network routing.Network) {
	where := "in a new network namespace"
	if to := cfg.Rootless.TUNNetns; to != "" {
		where = "in the network namespace of --tun-netns " + to
	}
	if err := rootless.Try(cfg); err != nil {
		r.fault(err)
	} else {
		r.remark("namespace: a TUN can be made %s", where)
	}
	if network.BackendType != "" {
		r.fault(network.WorksElsewhere())
	}
	if cfg.Rootless.On {
		if why := network.Facts().Privilege; why != "" {
			r.fault(fmt.Errorf("backend %s: %s", network.BackendType, why))
		}
		r.remark("without root: path raw, rx-udp-gro-forwarding and rules that guard the overlay's port are off")
		if line := rootless.ReceiveBuffer(); line != "" {
			r.remark("%s", line)
		}
		port := 0
		if network.BackendType != "" {
			port = int(network.Facts().Port)
		}
		r.remark("%s", rootless.Firewall(port))
	}
}
