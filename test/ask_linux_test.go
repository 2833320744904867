package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

// What the commands print with --json, as far as the scenarios look at it. The field names are
// written out here once more on purpose: scripts of operators rely on them.
type (
	statusJSON struct {
		Version, NodeID string
		PID             int
		Ready           bool
		NotReady, Notes []string
		NotReadyCodes   []string
		NoteCodes       []string
		Lease           *struct {
			Subnet, IPv6Subnet netip.Prefix
			Held               bool
			Expires            time.Time
			Detail             string
		}
		Backend struct {
			Type, Path, Device string
			MTU, Port          int
			InPlace            bool
			Notes              []string
			Error              string
		}
		Underlay struct {
			Link, Lost, RxUDPGROForwarding             string
			MTU                                        int
			Address, IPv6Address, PublicIP, PublicIPv6 netip.Addr
		}
		Store struct {
			Kind, Prefix, Error, ClusterID string
			Endpoints                      []string
			Connected                      bool
			LastSeen                       time.Time
			Revision                       int64
		}
		Cache struct {
			File string
			Used bool
		}
		Config struct {
			InUse, Other             string
			Differs, LastGood        bool
			Faults, Changes, Unknown []string
		}
		Alarm           string
		Peers, Rejected int
		Counters        countersJSON
	}
	countersJSON struct {
		Egress, Ingress flowJSON
		Offloads        []struct {
			Name, State    string
			Calls, Packets uint64
		}
		Outlets []struct {
			Outlet, Because string
		}
	}
	flowJSON struct {
		Received, Delivered uint64
		Drops               []dropJSON
	}
	dropJSON struct {
		Reason  string
		Packets uint64
		Admit   string
	}
	peersJSON struct {
		Peers []struct {
			Name    string
			Subnets []netip.Prefix
			Address netip.Addr
			Weft    bool
			MTU     int
			Drops   []dropJSON
		}
		Strangers []struct {
			Address netip.Addr
			Packets uint64
			Admit   string
		}
	}
)

// dropped is the number of packets dropped for reason.
func (f flowJSON) dropped(reason string) uint64 { return dropsOf(f.Drops, reason) }

func dropsOf(drops []dropJSON, reason string) uint64 {
	for _, d := range drops {
		if d.Reason == reason {
			return d.Packets
		}
	}
	return 0
}

// balanced reports whether every packet of a direction was delivered or dropped for a reason.
func (f flowJSON) balanced() bool {
	n := f.Delivered
	for _, d := range f.Drops {
		n += d.Packets
	}
	return n == f.Received
}

// weft runs the operator's command against a node's daemon.
func weft(t testing.TB, n *lab.Node, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(await.Context(t, await.Patience), command(t, "weft"), args...)
	cmd.Env = append(os.Environ(), "WEFTD_CONTROL_SOCKET="+n.ControlSocket)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = n.NS.Run(cmd)
	return out.String(), errs.String(), err
}

// weftJSON runs the command with --json and decodes what it prints.
func weftJSON[T any](t testing.TB, n *lab.Node, args ...string) (v T) {
	t.Helper()
	v, err := weftTells[T](t, n, args...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// weftTells is weftJSON for who asks again: an error says that there was no answer.
func weftTells[T any](t testing.TB, n *lab.Node, args ...string) (v T, err error) {
	t.Helper()
	out, errs, err := weft(t, n, append(args, "--json")...)
	if err != nil {
		return v, fmt.Errorf("weft %v on %s: %w: %s", args, n.Name, err, errs)
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		return v, fmt.Errorf("weft %v on %s: %w\n%s", args, n.Name, err, out)
	}
	return v, nil
}

// ask reads the same from the socket itself, for polling without a process for each try.
func ask[T any](ctx context.Context, n *lab.Node, path string) (v T, err error) {
	return v, lab.Ask(ctx, n.ControlSocket, path, &v)
}

// status waits until a node's status is what ok wants, and returns it.
func status(t testing.TB, n *lab.Node, limit time.Duration, ok func(statusJSON) error) (s statusJSON) {
	t.Helper()
	await.Within(t, limit, n.Name+"'s status", func() (err error) {
		if s, err = ask[statusJSON](t.Context(), n, "status"); err != nil {
			return err
		}
		return ok(s)
	})
	return s
}

// current is a node's status as it is.
func current(t testing.TB, n *lab.Node) statusJSON {
	t.Helper()
	return status(t, n, await.Patience, func(statusJSON) error { return nil })
}

// booked is a node's status once its books balance: a packet is counted when it comes in, and again when it
// has been dealt with, and in between a busy machine may have no time for the worker that has it.
func booked(t testing.TB, n *lab.Node) statusJSON {
	t.Helper()
	return status(t, n, await.Patience, func(s statusJSON) error {
		if !s.Counters.Egress.balanced() || !s.Counters.Ingress.balanced() {
			return fmt.Errorf("what was received is not what was delivered and dropped: %+v", s.Counters)
		}
		return nil
	})
}

// still waits until a node has carried nothing for a moment, and returns its status: what was sent to it
// before is counted. Who compares counters then finds only what he sends himself.
func still(t testing.TB, n *lab.Node) statusJSON {
	t.Helper()
	const moment = time.Second
	var carried uint64
	since := time.Now()
	return status(t, n, await.Patience, func(s statusJSON) error {
		if c := s.Counters.Egress.Received + s.Counters.Ingress.Received; c != carried {
			carried, since = c, time.Now()
		}
		if c := s.Counters; time.Since(since) < moment || !c.Egress.balanced() || !c.Ingress.balanced() {
			return fmt.Errorf("it carries packets: %+v", c)
		}
		return nil
	})
}

// knows waits until a node has a peer with the subnet, or has it no more, and returns how long that took.
func knows(t testing.TB, n *lab.Node, limit time.Duration, subnet string, want bool) time.Duration {
	t.Helper()
	p := netip.MustParsePrefix(subnet)
	return await.Within(t, limit, fmt.Sprintf("%s has peer %s: %v", n.Name, p, want), func() error {
		all, err := ask[peersJSON](t.Context(), n, "peers")
		if err != nil {
			return err
		}
		found := false
		for _, e := range all.Peers {
			for _, s := range e.Subnets {
				found = found || s == p
			}
		}
		if found != want {
			return fmt.Errorf("peers %+v", all.Peers)
		}
		return nil
	})
}
