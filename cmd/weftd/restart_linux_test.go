package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
	"weft/test/await"
	"weft/test/lab/probe"
	"weft/test/netns"
	"weft/test/systemdtest"
	"weft/test/traffic"
)

// fits is how long nobody may have read for queues to have held everything: the smallest, the TUN's, lasts
// for a second at a thousand packets a second. A machine that is so busy that a weftd takes longer proves
// nothing.
const fits = 900 * time.Millisecond

// inHands is how many packets a process that is killed may take with it, since it had read and not yet
// written them: at a thousand a second one to three, and on some kills only. What comes while nobody is there
// is a hundred and more.
const inHands = 16

// byNobody is custody.ByHolder's like for a weftd of which nobody keeps anything.
const byNobody = "nobody"

// queued is how many packets wait each way while nobody reads. The smallest queue, the TUN's, holds 1,000.
const queued = 900

// TestRestartKeepsQueuedPackets stops, kills and upgrades a weftd. What is sent while no weftd reads waits in
// the kernel's queues, whoever keeps their descriptors, and arrives once and in order. Connections stay, and
// bytes move on them again. WEFT_LONG=1 then does that 20 times, under a steady stream.
func TestRestartKeepsQueuedPackets(t *testing.T) {
	netns.Root(t, "a buffer of any size (SO_SNDBUFFORCE, SO_RCVBUFFORCE) is for root of the machine")
	t.Parallel()
	for name, backend := range carried() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := pairOf(t, backend)
			a.start(t)
			a.awaitReady(t)
			for _, by := range keepers(name) {
				t.Run(by, func(t *testing.T) {
					b.begin(t, by)
					a.reaches(t, b)
					s := a.streams(t, b)
					for _, k := range b.kinds(t, by) {
						if by != byNobody {
							var waiting [2]*probe.Paced
							k.again(func() { waiting = send(t, a, b) })
							for _, p := range waiting {
								if r := p.Wait(); r.Lost > 0 || r.Duplicates > 0 || r.Reordered > 0 {
									t.Errorf("%s: %s", k.name, r)
								}
							}
							s.move(t)
						}
						if long() {
							k.replaced(t, a, b)
							s.move(t)
						}
					}
					s.end(t)
					b.stop(t, syscall.SIGTERM)
				})
			}
		})
	}
}

// ends are both hosts, by their addresses on the overlay.
func ends(t *testing.T, a, b *host) [2]probe.Endpoint {
	t.Helper()
	return [2]probe.Endpoint{
		{Name: a.name, NS: a.ns, Addr: a.inner(t)},
		{Name: b.name, NS: b.ns, Addr: b.inner(t)},
	}
}

// flows are steady streams of a thousand packets a second both ways.
func flows(t *testing.T, a, b *host) [2]*traffic.Flow {
	t.Helper()
	e := ends(t, a, b)
	return [2]*traffic.Flow{traffic.Start(t, e[0], e[1], 1000), traffic.Start(t, e[1], e[0], 1000)}
}

// send sends packets both ways, and returns when all of them wait in queues.
func send(t *testing.T, a, b *host) (out [2]*probe.Paced) {
	t.Helper()
	e := ends(t, a, b)
	for i := range out {
		plan := probe.PacedPlan{From: e[i], To: e[1-i], Count: queued, Wait: await.Patience}
		p, err := probe.StartPaced(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = p
	}
	for _, p := range out {
		await.OK(t, "packets are in queues", func() error {
			if sent, got := p.Progress(); sent < queued || got > 0 {
				return fmt.Errorf("%d were sent, %d arrived", sent, got)
			}
			return nil
		})
	}
	return out
}

// keepers are those that a path is tried with.
func keepers(path string) []string {
	switch {
	case long():
		return []string{custody.ByHolder, custody.ByManager, byNobody}
	case strings.HasPrefix(path, "socket"):
		return []string{custody.ByManager}
	}
	return []string{custody.ByHolder}
}

// begin starts a weftd whose descriptors by keeps, and waits until it is ready and they are kept.
func (h *host) begin(t *testing.T, by string) {
	t.Helper()
	switch by {
	case custody.ByManager:
		if h.manager == nil {
			h.manager = systemdtest.New(t, 64)
		}
		h.start(t)
	case byNobody:
		if h.manager != nil {
			h.manager.Drop()
			h.manager = nil
		}
		h.start(t, "--holder-timeout=0")
	default:
		h.start(t)
	}
	h.awaitReady(t)
	if by == byNobody {
		return
	}
	h.portsKept(t)
	if s, err := h.status(t); err != nil || s.Custody.By != by {
		t.Errorf("%+v %v, want %s to keep them", s.Custody, err, by)
	}
}

// kind is a way in which a weftd is replaced by another one.
type kind struct {
	name string
	most int // packets of a steady stream that may be lost, of what fits into the queues
	// again replaces it, and calls meanwhile, unless that is nil, while nobody reads.
	again func(meanwhile func())
}

func (h *host) kinds(t *testing.T, by string) []kind {
	ending := func(sig syscall.Signal) func(func()) {
		return func(meanwhile func()) {
			h.stop(t, sig)
			if meanwhile != nil {
				meanwhile()
			}
			h.begin(t, by)
		}
	}
	if by == byNobody {
		return []kind{{"SIGTERM", math.MaxInt, ending(syscall.SIGTERM)},
			{"SIGKILL", math.MaxInt, ending(syscall.SIGKILL)}}
	}
	return []kind{
		{"SIGTERM", 0, ending(syscall.SIGTERM)}, {"SIGKILL", inHands, ending(syscall.SIGKILL)},
		{"upgrade", 0, func(meanwhile func()) {
			if err := h.upgradeHeld(t, meanwhile); err != nil {
				t.Error(err)
				return
			}
			h.awaitReady(t)
			h.portsKept(t)
		}},
	}
}

// upgradeHeld upgrades weftd. With meanwhile it executes a script, which waits in weftd's place until
// meanwhile returns, and then executes the new weftd.
func (h *host) upgradeHeld(t *testing.T, meanwhile func()) error {
	t.Helper()
	if meanwhile == nil {
		_, err := h.upgrade(t, "weftd")
		return err
	}
	weftd, err := exec.LookPath("weftd")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script, arrived, gate := filepath.Join(dir, "weftd"), filepath.Join(dir, "arrived"),
		filepath.Join(dir, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	netns.Script(t, script, fmt.Sprintf("#!/bin/sh\n"+asks+": >%s; read x <%s; exec %[1]s \"$@\"\n", weftd,
		arrived, gate))
	upgraded := make(chan error, 1)
	go func() { // ends with the upgrade
		_, err := control.NewClient(h.socket()).Upgrade(t.Context(), control.UpgradeRequest{Binary: script})
		upgraded <- err
	}()
	await.OK(t, "the script is in weftd's place", func() error {
		_, err := os.Stat(arrived)
		return err
	})
	meanwhile()
	if err := os.WriteFile(gate, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	return <-upgraded
}

// replaced has weftd replaced in one way again and again, each time under ten thousand packets each way.
func (k kind) replaced(t *testing.T, a, b *host) {
	t.Helper()
	for range 20 {
		lost, gap := 0, time.Duration(0)
		streams := flows(t, a, b)
		k.again(nil)
		for i, f := range streams {
			if i == 0 { // the other one passes as many meanwhile
				f.Passes(10_000)
			}
			r := f.Stop()
			if lost, gap = lost+r.Lost, max(gap, r.LongestGap); r.Duplicated > 0 || r.Reordered > 0 {
				t.Errorf("%s: %s", k.name, r)
			}
		}
		t.Logf("%s: %d lost, longest silence %v", k.name, lost, gap.Round(time.Millisecond))
		if lost > k.most && gap < fits {
			t.Errorf("%s: %d lost of what fits into the queues", k.name, lost)
		}
	}
}
