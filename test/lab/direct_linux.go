package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// reservationsDir is, in the folder of a node, where the addresses of its directly attached pods are
// reserved. Nodes of one machine must not share host-local's own directory.
const reservationsDir = "reservations"

// attachTimeout bounds one call of weft attach.
const attachTimeout = 20 * time.Second

// attachDirectly makes the pods, with one call of weft attach for each.
func (n *Node) attachDirectly() error {
	for i := 1; i <= n.lab.Spec.PodsPerNode; i++ {
		p, err := n.newPod(i)
		if err != nil {
			return err
		}
		if err := p.Attach(); err != nil {
			return err
		}
		n.Pods = append(n.Pods, p)
	}
	return nil
}

// Attach calls weft attach for a pod that has no interface yet, or whose node's weftd has lost it, as its
// runtime would.
func (p *Pod) Attach() error {
	// The namespace has no name. This process has a descriptor of it, and lives as long as the pod.
	which := []string{"--netns", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.NS.FD())}
	if p.pid != 0 {
		which = []string{"--pid", strconv.Itoa(p.pid)}
	}
	out, err := p.Node.Weft(slices.Concat([]string{"attach"}, which,
		[]string{"--name", "eth0", "--pod", p.Name, "--json"}, p.Node.AttachArgs())...)
	if err != nil {
		return fmt.Errorf("attach %s: %w", p.Name, err)
	}
	var attached struct {
		Addresses []netip.Addr `json:"addresses"`
	}
	if err := json.Unmarshal(out, &attached); err != nil {
		return fmt.Errorf("attach %s: %w: %s", p.Name, err, out)
	}
	for _, a := range attached.Addresses {
		if a.Is4() {
			p.V4 = a
		} else {
			p.V6 = a
		}
	}
	return nil
}

// Reservations is the directory in which the addresses of the node's directly attached pods are reserved.
func (n *Node) Reservations() string { return filepath.Join(n.Dir, reservationsDir) }

// AttachArgs are the arguments of weft attach, and of weft detach, that a lab needs because its nodes share a
// machine.
func (n *Node) AttachArgs() []string { return []string{"--reservations", n.Reservations()} }

// Weft runs the operator's command in the node, as the user whose the node's weftd is, and for that, and
// returns what it prints.
func (n *Node) Weft(args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), attachTimeout)
	defer cancel()
	argv := append([]string{n.lab.Spec.weft()}, args...)
	if n.user != nil {
		argv = append(n.user.by(), argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "WEFTD_CONTROL_SOCKET="+n.ControlSocket)
	var out, fault limited
	cmd.Stdout, cmd.Stderr = &out, &fault
	if err := n.NS.Run(cmd); err != nil {
		return out.b, fmt.Errorf("%v: %w: %s", cmd.Args, err, bytes.TrimSpace(fault.b))
	}
	return out.b, nil
}
