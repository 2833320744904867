package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
)

// podsJSON is what weft pods --json prints, as far as the scenarios look at it.
type podsJSON struct {
	Pods []struct {
		ID, Interface, State, Problem string
		Addresses                     []string
	}
}

// Many pods of one node are attached directly. Nothing of them is left when they are gone, detached or killed.
func TestManyDirectPods(t *testing.T) {
	parallel(t)
	const many = 10
	const config = `{"Network":"10.42.0.0/16","SubnetLen":22,"EnableIPv6":true,"IPv6Network":"fd42::/48","Backend":{"Type":"udp"}}`
	l := up(t, lab.Spec{NetworkConfig: json.RawMessage(config), Attach: lab.DirectAttach})
	n, other := l.Node(1), l.Node(2).Pods[0]
	before := footprint(t, n)
	t.Run("attach and detach", func(t *testing.T) {
		p := sandbox(t, n)
		for range many {
			attach(t, n, p)
			detach(t, n, p)
		}
		leftAs(t, n, before)
	})
	t.Run("attached again with another MTU", func(t *testing.T) {
		p := sandbox(t, n)
		attach(t, n, p)
		await.OK(t, "weftd has nothing more to do, and sees at once that an interface is gone", func() error {
			text, err := os.ReadFile(filepath.Join(n.Dir, "cache", "pods.json"))
			if err == nil && !strings.Contains(string(text), fmt.Sprintf("/proc/%d/", p.Process.Pid)) {
				err = errors.New("the pod is not on disk")
			}
			return err
		})
		attach(t, n, p, "--mtu", "1300")
		if got := footprint(t, n); got.pods != before.pods+1 || got.addresses != before.addresses+2 {
			t.Errorf("%+v, want one pod and its two reservations more than %+v", got, before)
		}
		detach(t, n, p)
		leftAs(t, n, before)
	})
	t.Run("killed", func(t *testing.T) {
		before := footprint(t, n)
		var pods []*exec.Cmd
		for range many {
			p := sandbox(t, n)
			pods = append(pods, p)
			attach(t, n, p)
		}
		if with := footprint(t, n); with.pods != before.pods+many || with.addresses != before.addresses+2*many {
			t.Fatalf("%+v with %d more than %+v", with, many, before)
		}
		for _, to := range []string{other.V4.String(), other.V6.String(), n.Pods[0].V4.String()} {
			argv := []string{"-n", "-t", fmt.Sprint(pods[0].Process.Pid), "ping", "-n", "-c", "1", "-W", "10", to}
			if out, err := exec.Command("nsenter", argv...).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
		for _, p := range slices.Backward(pods) {
			if err := p.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
		leftAs(t, n, before)
		reach(t, await.Patience, n.Pods[0], other, 4)
	})
}

// sandbox starts a process with a network namespace of its own, as a container's first one. It is killed at the end at the latest.
func sandbox(t *testing.T, n *lab.Node) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "3600")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := n.NS.Start(cmd); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { // ends with the process
		_ = cmd.Wait()
		close(gone)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails if it is gone already
		<-gone
	})
	return cmd
}

func attach(t *testing.T, n *lab.Node, p *exec.Cmd, args ...string) {
	t.Helper()
	if _, errs, err := weft(t, n, slices.Concat([]string{"attach", "--pid", fmt.Sprint(p.Process.Pid)}, n.AttachArgs(), args)...); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
}

func detach(t *testing.T, n *lab.Node, p *exec.Cmd) {
	t.Helper()
	if _, errs, err := weft(t, n, append([]string{"detach", "--pid", fmt.Sprint(p.Process.Pid)}, n.AttachArgs()...)...); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
}

// left is what pods take of a node.
type left struct{ pods, addresses, files int }

func footprint(t *testing.T, n *lab.Node) (f left) {
	t.Helper()
	all, err := ask[podsJSON](t.Context(), n, "pods")
	if err != nil {
		t.Fatal(err)
	}
	f.pods = len(all.Pods)
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.Daemon.PID()))
	if err != nil {
		t.Fatal(err)
	}
	f.files = len(files)
	reserved, err := filepath.Glob(filepath.Join(n.Reservations(), "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range reserved {
		if _, err := netip.ParseAddr(filepath.Base(name)); err == nil { // beside them are a lock and what was given last
			f.addresses++
		}
	}
	return f
}

// leftAs waits until a node has as much as it had. Some descriptors come and go with connections.
func leftAs(t *testing.T, n *lab.Node, want left) {
	t.Helper()
	await.Within(t, await.Timers, "nothing is left", func() error {
		got := footprint(t, n)
		if got.pods != want.pods || got.addresses != want.addresses || got.files > want.files+5 {
			return fmt.Errorf("%+v, want %+v", got, want)
		}
		return nil
	})
}
