package lab

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
)

// SecondPrefix is the etcd prefix of a second network.
const SecondPrefix = "/second/network"

// Second brings up a second weftd on each node of a lab with a separate store, and returns them as nodes of
// their own: each shares its host with a node of the lab, and has its own etcd prefix, files, sockets, bridge
// and pods. They end with the lab.
func (l *Lab) Second(ctx context.Context, config json.RawMessage) ([]*Node, error) {
	if err := l.Store.Put(ctx, SecondPrefix+"/config", string(config)); err != nil {
		return nil, l.Store.fault(err)
	}
	var all []*Node
	for _, n := range l.Nodes() {
		s := &Node{
			Host: n.Host, Place: n.Host, Index: n.Index, Underlay4: n.Underlay4, Underlay6: n.Underlay6, lab: l,
			second: true,
		}
		s.files(filepath.Join(n.Dir, "second"))
		if err := os.MkdirAll(s.CacheDir, 0o755); err != nil {
			return nil, err
		}
		s.Daemon = NewDaemon(n.Host, n.Name+"'s second weftd", filepath.Join(s.Dir, "weftd.log"), l.Spec.WeftdPath,
			append(l.weftdArgs(s), "--etcd-prefix="+SecondPrefix)...)
		s.Daemon.nice = l.Spec.Nice
		all = append(all, s)
	}
	return all, l.startNodes(ctx, all)
}

// files says where a node's files are.
func (n *Node) files(dir string) {
	n.Dir, n.ControlSocket, n.CacheDir = dir, filepath.Join(dir, controlSocket), filepath.Join(dir, "cache")
	n.SubnetFile, n.NetConfigFile = filepath.Join(dir, "subnet.env"), filepath.Join(dir, "net-conf.json")
}

// label begins the names that tell what a second network has on a node from what the first has.
func (n *Node) label() string {
	if n.second {
		return "second-"
	}
	return ""
}

func (n *Node) healthPort() int {
	if n.second {
		return HealthPort + 1
	}
	return HealthPort
}

// bridge is the name of the bridge of its pods.
func (n *Node) bridge() string { return n.label() + "cni0" }
