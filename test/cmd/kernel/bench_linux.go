package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/lab"
	"weft/test/lab/probe"
)

// bench is the lab, whose nodes run no weftd between the scenarios.
type bench struct {
	lab  *lab.Lab
	weft string // the command
	runs bool   // packet sockets of this kernel carry runs of UDP datagrams
	// clean is what the nodes' kernels have while weft has nothing there.
	clean []string
}

func newBench(ctx context.Context) (*bench, error) {
	weftd, err := lab.FindWeftd()
	if err != nil {
		return nil, err
	}
	b := &bench{weft: filepath.Join(filepath.Dir(weftd), "weft")}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	// Linux 6.2; Debian adds nothing of that to older ones
	b.runs = !regexp.MustCompile(`^([1-5]|6\.[01])\.`).Match(u.Release[:])
	// Of all types this one has the smallest packets, for which the pods are made.
	b.lab, err = lab.Up(ctx, lab.Spec{WeftdPath: weftd, PodsPerNode: 1, Store: lab.Separate,
		ReadyTimeout:  2 * time.Minute,
		NetworkConfig: config(`"Type":"wireguard","Userspace":"never"`)})
	if err != nil {
		return nil, err
	}
	if err = b.stop(ctx); err == nil {
		b.clean, err = b.state(ctx)
	}
	for _, line := range b.clean {
		if regexp.MustCompile(`(?i)flannel|weft`).MatchString(line) {
			err = errors.Join(err, fmt.Errorf("weft cleanup leaves: %s", line))
		}
	}
	if err != nil {
		b.lab.Close()
		return nil, err
	}
	return b, nil
}

func config(keys string) json.RawMessage {
	return json.RawMessage(`{"Network":"10.42.0.0/16","EnableNFTables":true,"Backend":{` + keys + `}}`)
}

func (b *bench) configure(ctx context.Context, keys string) error {
	return b.lab.Store.Put(ctx, "/coreos.com/network/config", string(config(keys)))
}

func sh(ctx context.Context, h *lab.Host, script string) error {
	_, err := h.Command(ctx, "sh", "-ec", script)
	return err
}

// stop ends weftd on the nodes, and takes away what it leaves there.
func (b *bench) stop(ctx context.Context) error {
	var faults []error
	for _, n := range b.lab.Nodes() {
		var err error
		if n.Daemon.PID() != 0 {
			err = n.Stop(ctx)
		}
		_, left := n.Command(ctx, b.weft, "cleanup", "--files", "--subnet-file", n.SubnetFile, "--cache-dir",
			n.CacheDir, "--control-socket", n.ControlSocket)
		faults = append(faults, err, left)
	}
	return errors.Join(faults...)
}

// isClean compares what the nodes' kernels have with what they had.
func (b *bench) isClean(ctx context.Context) error {
	now, err := b.state(ctx)
	if err != nil || slices.Equal(now, b.clean) {
		return err
	}
	gone := slices.DeleteFunc(slices.Clone(b.clean), func(line string) bool {
		return slices.Contains(now, line)
	})
	more := slices.DeleteFunc(now, func(line string) bool { return slices.Contains(b.clean, line) })
	return fmt.Errorf("weft cleanup leaves another state; gone:\n%s\nnew:\n%s", strings.Join(gone, "\n"),
		strings.Join(more, "\n"))
}

// state is what the kernel has of links, addresses, routes, rules and settings on the nodes, without what
// changes by itself.
func (b *bench) state(ctx context.Context) (lines []string, err error) {
	for _, n := range b.lab.Nodes() {
		out, err := n.Command(ctx, "sh", "-ec",
			`modprobe -a ipip ip6_tunnel sit # which make a device in each namespace
ip -d -o link | sed -E 's/^[0-9]+: //; s/_timer +[0-9.]+//g'; ip -o addr | sed 's/^[0-9]*: //;s/valid_lft.*//'
for family in -4 -6; do ip $family route show table all; ip $family rule; done | sed 's/ expires [^ ]*//'
ip neigh show nud permanent; nft list ruleset; ethtool -k eth0
cd /proc/sys/net; grep -s . ipv4/ip_forward ipv[46]/conf/all/* ipv[46]/conf/default/* ipv[46]/conf/eth0/* || true`)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(out)) {
			lines = append(lines, n.Name+" "+strings.TrimSpace(line))
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// flows has pods reach each other, and carries some TCP each way.
func (b *bench) flows(ctx context.Context) error {
	pods := b.lab.Pods()
	for _, way := range [][2]*lab.Pod{{pods[0], pods[1]}, {pods[1], pods[0]}} {
		from, to := way[0].Endpoint(4), way[1].Endpoint(4)
		if err := lab.Reach(ctx, from, to.Addr); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("no end after a minute"))
		r, err := probe.Stream(ctx, probe.StreamPlan{From: from, To: to, Bytes: 5_000_000, Verify: true})
		cancel()
		if err != nil {
			return fmt.Errorf("TCP from %s to %s: %d bytes arrived: %w", from.Name, to.Name, r.Received, err)
		}
	}
	return nil
}

// well says what weftd and weft doctor on the nodes find wrong, and whether another path than the wanted one
// is in use.
func (b *bench) well(ctx context.Context, path string) error {
	var faults []error
	for _, n := range b.lab.Nodes() {
		var status struct {
			Ready    bool
			Backend  struct{ Path, Error string }
			Counters struct {
				Ingress struct {
					Drops []struct {
						Reason  string
						Packets int
					}
				}
				Offloads []struct{ Name, State string }
			}
		}
		var doctor struct {
			Findings []struct{ ID, Verdict, Found string }
		}
		if err := errors.Join(b.ask(ctx, n, &status, "status"), b.ask(ctx, n, &doctor, "doctor")); err != nil {
			return err
		}
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf(n.Name+": "+format, args...))
		}
		if !status.Ready || status.Backend.Error != "" || path != "" && status.Backend.Path != path {
			fault("ready %v, %+v, want path %s", status.Ready, status.Backend, path)
		}
		for _, d := range status.Counters.Ingress.Drops {
			if d.Reason == "malformed" {
				fault("%d packets dropped as %s", d.Packets, d.Reason)
			}
		}
		for _, o := range status.Counters.Offloads {
			if o.State == "lost" {
				fault("offload %s is lost", o.Name)
			}
		}
		for _, f := range doctor.Findings {
			if f.Verdict == "fault" {
				fault("doctor: %s: %s", f.ID, f.Found)
			}
		}
	}
	return errors.Join(faults...)
}

// ask reads what a command prints as JSON. Its exit status is left out, since doctor's tells of faults.
func (b *bench) ask(ctx context.Context, n *lab.Node, into any, command string) error {
	out, failed := n.Command(ctx, b.weft, command, "--json", "--control-socket", n.ControlSocket)
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("weft %s on %s: %w", command, n.Name, errors.Join(failed, err))
	}
	return nil
}
