package holder

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"weft/test/lab"
)

// Info describes a lab that is up.
type Info struct {
	Name   string `json:"name"`
	Driver string `json:"driver"`
	Wire   string `json:"wire"`
	Attach string `json:"attach"`
	// Rootless says that the nodes' weftds are without root.
	Rootless bool       `json:"rootless"`
	Dir      string     `json:"dir"`
	Nodes    []NodeInfo `json:"nodes"`
}

// NodeInfo is one node of a lab.
type NodeInfo struct {
	Name          string     `json:"name"`
	Underlay4     netip.Addr `json:"underlay4"`
	Underlay6     netip.Addr `json:"underlay6"`
	ControlSocket string     `json:"controlSocket"`
	Log           string     `json:"log"`
	// TUN is the host that the node's TUN is in: the node's own name, or that of its user's namespace.
	TUN  string    `json:"tun"`
	Pods []PodInfo `json:"pods"`
}

// PodInfo is one pod of a node. Its address is empty in a family that it does not have.
type PodInfo struct {
	Name string     `json:"name"`
	V4   netip.Addr `json:"v4"`
	V6   netip.Addr `json:"v6"`
}

// state is what the holder of a lab that is up writes into its directory.
type state struct {
	Info  *Info
	Hosts []hostState
}

// hostState is how a command gets into a host.
type hostState struct {
	Name string
	// Mounts is the mount namespace of the holder's thread in the host, as /proc names it.
	Mounts string
	// Env is added to the command's environment. It names the lab's directory on every host.
	Env []string
}

func stateOf(l *lab.Lab) (*state, error) {
	s := &state{Info: infoOf(l)}
	for _, h := range l.Hosts() {
		host := hostState{Name: h.Name, Env: append(nodeEnv(l, h.Name), dirEnv+"="+l.Spec.StateDir)}
		err := h.Do(func() (err error) {
			host.Mounts, err = os.Readlink("/proc/thread-self/ns/mnt")
			return err
		})
		if err != nil {
			return nil, err
		}
		s.Hosts = append(s.Hosts, host)
	}
	return s, nil
}

func infoOf(l *lab.Lab) *Info {
	i := &Info{
		Name: l.Spec.Name, Driver: l.Spec.Driver, Wire: l.Spec.Wire,
		Attach:   l.Spec.Attach,
		Rootless: l.Spec.Rootless, Dir: l.Spec.StateDir,
	}
	for _, n := range l.Nodes() {
		node := NodeInfo{
			Name: n.Name, Underlay4: n.Underlay4, Underlay6: n.Underlay6,
			ControlSocket: n.ControlSocket, Log: n.Daemon.LogFile, TUN: n.Place.Name,
		}
		for _, p := range n.Pods {
			node.Pods = append(node.Pods, PodInfo{Name: p.Name, V4: p.V4, V6: p.V6})
		}
		i.Nodes = append(i.Nodes, node)
	}
	return i
}

// nodeEnv tells commands on a node where its weftd is.
func nodeEnv(l *lab.Lab, host string) []string {
	for _, n := range l.Nodes() {
		if n.Name == host || strings.HasPrefix(host, n.Name+"-") {
			return []string{
				"WEFTD_CONTROL_SOCKET=" + n.ControlSocket, "WEFTD_SUBNET_FILE=" + n.SubnetFile,
				"WEFT_RESERVATIONS=" + n.Reservations(),
			}
		}
	}
	return nil
}

// write makes the lab known as up.
func (s *state) write(dir string) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	draft := filepath.Join(dir, stateFile+".new")
	if err := os.WriteFile(draft, b, 0o600); err != nil {
		return err
	}
	return os.Rename(draft, filepath.Join(dir, stateFile))
}

// readState returns what the living holder of a lab wrote, and the holder's process id.
func readState(dir string) (*state, int, error) {
	pid, err := holderPID(dir)
	if err != nil {
		return nil, 0, err
	}
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return nil, 0, errNotUp
	}
	s := &state{}
	return s, pid, json.Unmarshal(b, s)
}

func (s *state) host(name string) (hostState, error) {
	var names []string
	for _, h := range s.Hosts {
		if h.Name == name {
			return h, nil
		}
		names = append(names, h.Name)
	}
	return hostState{}, fmt.Errorf("no host %q in lab %s: it has %v", name, s.Info.Name, names)
}
