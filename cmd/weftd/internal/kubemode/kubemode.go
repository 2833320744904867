// Package kubemode has what weftd and its check share for --kube-subnet-mgr: it translates the options
// for lease/kube, and reads the network configuration, which is a file in this mode.
package kubemode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"

	"weft/cmd/internal/options"
	"weft/lease/kube"
	"weft/routing"
)

// Client returns the configuration of the client by which cfg reaches the API server.
func Client(cfg options.Config, log *slog.Logger) kube.Config {
	k := cfg.Kube
	return kube.Config{
		APIURL: k.APIURL, Kubeconfig: k.Kubeconfig, AnnotationPrefix: k.AnnotationPrefix,
		NodeName: k.NodeName, PodName: k.PodName, PodNamespace: k.PodNamespace,
		SetNodeNetworkUnavailable: k.SetNodeNetworkUnavailable, Logger: log,
	}
}

// Routed returns the endpoints of client whose addresses packets really have. A pod knows the
// API server by its Service, whose address the cluster translates before a packet is routed, so
// that it may be any address.
func Routed(cfg options.Config, client *kube.Client) []string {
	if cfg.Kube.APIURL == "" && cfg.Kube.Kubeconfig == "" {
		return nil
	}
	return client.Endpoints()
}

// Network is the network configuration of a cluster. Its text is without the keys of Ignored.
type Network struct {
	routing.Network
	// Ignored are the keys about the allocation of subnets, which the cluster does and not weft.
	Ignored []string
}

// maxConfig bounds the file, in bytes.
const maxConfig = 1 << 20

// ReadNetwork reads and checks the file of --net-config-path. The error names the file, and says
// what to do. If the text has the fault, Raw is the text.
func ReadNetwork(path string) (Network, error) {
	b, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Network{}, fmt.Errorf("--net-config-path %s: there is no such file: mount the ConfigMap with "+
			"net-conf.json there (kube-flannel.yml calls it kube-flannel-cfg), or name another file", path)
	}
	if err != nil {
		return Network{}, fmt.Errorf("--net-config-path: %w", err)
	}
	n, err := ParseNetwork(b)
	if err != nil {
		n.Raw = b
		return n, fmt.Errorf("--net-config-path %s: %w", path, err)
	}
	return n, nil
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(b) > maxConfig {
		err = fmt.Errorf("%s has more than %d bytes", path, maxConfig)
	}
	return b, err
}

// ParseNetwork reads flannel's network configuration. Keys about the allocation of subnets are
// removed before anything is checked, since flannel does not read them either.
func ParseNetwork(b []byte) (Network, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(b, &keys); err != nil || keys == nil {
		n, err := routing.Parse(b) // has the words for it
		return Network{Network: n}, err
	}
	n := Network{}
	for key := range keys {
		if allocates(key) {
			n.Ignored = append(n.Ignored, key)
			delete(keys, key)
		}
	}
	slices.Sort(n.Ignored)
	var err error
	if len(n.Ignored) > 0 {
		if b, err = json.Marshal(keys); err != nil {
			return Network{}, err
		}
	}
	n.Network, err = routing.Parse(b)
	return n, err
}

// allocates reports whether key says how subnets are given out.
func allocates(key string) bool {
	return slices.ContainsFunc([]string{"SubnetLen", "SubnetMin", "SubnetMax", "IPv6SubnetLen", "IPv6SubnetMin",
		"IPv6SubnetMax"},
		func(known string) bool { return strings.EqualFold(key, known) })
}
