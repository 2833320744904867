package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// podsJSON is what weft pods --json prints, as far as the scenarios look at it.
type podsJSON struct {
	Pods []struct {
		ID, Interface, State, Problem string
		Addresses                     []string
	}
}

// Many pods on one node that are attached directly: what each costs, that they cost nothing while nobody speaks, and that nothing of them
// is left when they are gone, however they went. With WEFT_LONG there are 500, and 1,000 attaches of one namespace.
func TestManyDirectPods(t *testing.T) {
	many, times, watched := 20, 20, 3*time.Second
	if os.Getenv("WEFT_LONG") != "" {
		many, times, watched = 500, 1000, 30*time.Second
	}
	busy(t)
	const config = `{"Network":"10.42.0.0/16","SubnetLen":22,"EnableIPv6":true,"IPv6Network":"fd42::/48","Backend":{"Type":"udp"}}`
	l := up(t, lab.Spec{NetworkConfig: json.RawMessage(config), Attach: lab.DirectAttach})
	n, other := l.Node(1), l.Node(2).Pods[0]
	before := footprint(t, n)
	t.Run("attach and detach", func(t *testing.T) {
		p := sandbox(t, n)
		for range times {
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
	before = footprint(t, n)
	var pods []*exec.Cmd
	var took []time.Duration
	for range many {
		p := sandbox(t, n)
		pods = append(pods, p)
		began := time.Now()
		attach(t, n, p)
		took = append(took, time.Since(began))
	}
	with := footprint(t, n)
	t.Logf("%d pods: attached in %s at the median, %s at the 99th percentile, the command's start included; %d bytes resident a pod, %.2f descriptors",
		many, probe.Quantile(took, 0.5), probe.Quantile(took, 0.99), (with.resident-before.resident)<<10/many, float64(with.files-before.files)/float64(many))
	if with.pods != before.pods+many || with.addresses != before.addresses+2*many {
		t.Fatalf("%+v with %d more than %+v", with, many, before)
	}
	t.Run("they talk", func(t *testing.T) {
		for _, p := range pods[:3] {
			for _, to := range []string{other.V4.String(), other.V6.String(), n.Pods[0].V4.String()} {
				if out, err := exec.Command("nsenter", "-n", "-t", fmt.Sprint(p.Process.Pid), "ping", "-n", "-c", "1", "-W", "10", to).CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			}
		}
	})
	t.Run("idle", func(t *testing.T) {
		await.Within(t, 2*await.Patience+watched, "pods that say nothing wake nobody", func() error { // the kernel of a new interface with IPv6 says something for some seconds
			few := l.Node(2).Daemon.PID() // of a node with one pod, for comparison
			worked, woken, fewWorked, fewWoken := onCPU(t, n.Daemon.PID()), wakeups(t, n.Daemon.PID()), onCPU(t, few), wakeups(t, few)
			time.Sleep(watched) // that is what is looked at
			worked, woken = onCPU(t, n.Daemon.PID())-worked, wakeups(t, n.Daemon.PID())-woken
			fewWorked, fewWoken = onCPU(t, few)-fewWorked, wakeups(t, few)-fewWoken
			t.Logf("idle for %s: %d pods cost %s of a processor and %d wakeups, 1 pod on the other node %s and %d", watched, many+1, worked, woken, fewWorked, fewWoken)
			if most := int(wakeupsASecond / 5 * watched.Seconds()); woken > most {
				return fmt.Errorf("weftd woke %d times in %s, want at most %d", woken, watched, most)
			}
			return nil
		})
	})
	t.Run("killed in any order", func(t *testing.T) {
		for _, i := range rand.Perm(len(pods)) {
			if err := pods[i].Process.Kill(); err != nil {
				t.Error(err)
			}
		}
		leftWithin(t, await.Patience+time.Duration(many)*time.Second/2, n, before) // on a machine that others load, each has to wait for a processor some times
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
type left struct{ pods, addresses, files, resident int }

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
	if _, f.resident, err = memory(n.Daemon.PID()); err != nil {
		t.Fatal(err)
	}
	return f
}

// leftAs waits until a node has as much as it had. Some descriptors come and go with connections.
func leftAs(t *testing.T, n *lab.Node, want left) {
	t.Helper()
	leftWithin(t, await.Patience, n, want)
}

// leftWithin is leftAs with a limit.
func leftWithin(t *testing.T, limit time.Duration, n *lab.Node, want left) {
	t.Helper()
	await.Within(t, limit, "nothing is left", func() error {
		got := footprint(t, n)
		if got.pods != want.pods || got.addresses != want.addresses || got.files > want.files+5 {
			return fmt.Errorf("%+v, want %+v", got, want)
		}
		return nil
	})
}
