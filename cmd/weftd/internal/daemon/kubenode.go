package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"

	"weft/cmd/internal/statefiles"
	"weft/lease/atomicfile"
)

// kubeNode is what weftd has to know of our Node to start before the API server answers.
type kubeNode struct {
	Name string `json:"name"`
	// PublicIP and PublicIPv6 are the annotations node-public-ip and node-public-ipv6.
	PublicIP   netip.Addr `json:"publicIP,omitzero"`
	PublicIPv6 netip.Addr `json:"publicIPv6,omitzero"`
}

// nodeFile returns its path in the cache directory.
func (s *kubeSource) nodeFile() string { return filepath.Join(s.cfg.CacheDir, statefiles.KubeNode) }

// maxNodeFile bounds the file, in bytes.
const maxNodeFile = 4096

// loadNode reads what the last run saved. It is an error too if NODE_NAME names another Node.
func (s *kubeSource) loadNode() (n kubeNode, err error) {
	f, err := os.Open(s.nodeFile())
	if err != nil {
		return n, err
	}
	defer func() { _ = f.Close() }() // only read
	if err := json.NewDecoder(io.LimitReader(f, maxNodeFile)).Decode(&n); err != nil {
		return kubeNode{}, fmt.Errorf("%s: %w", s.nodeFile(), err)
	}
	switch given := s.cfg.Kube.NodeName; {
	case n.Name == "":
		return n, fmt.Errorf("%s names no node", s.nodeFile())
	case given != "" && given != n.Name:
		return n, fmt.Errorf("%s is of the node %q, and NODE_NAME is %q", s.nodeFile(), n.Name, given)
	}
	return n, nil
}

// saveNode replaces what the last run saved, if it differs.
func (s *kubeSource) saveNode(n kubeNode) error {
	if before, err := s.loadNode(); err == nil && before == n {
		return nil
	}
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return atomicfile.Write(s.nodeFile(), append(b, '\n'))
}
