package check

import (
	"log/slog"
	"strings"

	"weft/cmd/internal/options"
	"weft/cmd/weftd/internal/kubemode"
	"weft/lease"
	"weft/lease/kube"
)

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
	if err != nil {
		return nil
	}
	defer func() { _ = client.Close() }() // nothing was sent
	r.remark("API server: %s", strings.Join(client.Endpoints(), " "))
	return kubemode.Routed(cfg, client)
}

// kubeNetwork reads the configuration file.
func (r *report) kubeNetwork(cfg options.Config) lease.NetworkConfig {
	network, err := kubemode.ReadNetwork(cfg.NetConfigPath)
	if err != nil {
		r.fault(err)
		r.unknown(network.Raw, "--net-config-path "+cfg.NetConfigPath)
		return guessed()
	}
	if len(network.Ignored) > 0 {
		r.remark("network config: %s have no effect: the cluster gives out subnets", strings.Join(network.Ignored, ", "))
	}
	r.unknown(network.Raw, "--net-config-path "+cfg.NetConfigPath)
	r.describe(network.NetworkConfig, "file "+cfg.NetConfigPath)
	return network.NetworkConfig
}
