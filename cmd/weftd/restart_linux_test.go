package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
	"weft/cmd/internal/systemdtest"
	"weft/test/await"
	"weft/test/lab/probe"
	"weft/test/netns"
)

// counts are how often a weftd is replaced in each way under a steady stream, and how many packets there are of each
// time, one each millisecond and direction.
type counts struct{ upgrades, restarts, packets int }

func inCounts() counts {
	packets, err := strconv.Atoi(cmp.Or(os.Getenv("WEFT_PACKETS"), "10000"))
	if err != nil {
		packets = 10_000
	}
	return counts{20, 20, packets}
}

// fits is how long nobody may have read for queues to have held everything: the smallest, the TUN's, lasts for a second at a thousand
// packets a second. A machine that is so busy that a weftd takes longer proves nothing.
const fits = 900 * time.Millisecond

// inHands is how many packets a process that is killed may take with it, since it had read and not yet written them: at a thousand a second one to three,
// and on some kills only. What comes while nobody is there is a hundred and more.
const inHands = 16

// mostPackets bounds a stream, which ends earlier: a weftd has two minutes to come back.
const mostPackets = 120_000

// byNobody is custody.ByHolder's like for a weftd of which nobody keeps anything.
const byNobody = "nobody"

// queued is how many packets wait each way while nobody reads. The smallest queue, the TUN's, holds 1,000.
const queued = 900

// TestRestartKeepsQueuedPackets stops, kills and upgrades a weftd. What is sent while no weftd reads waits in the kernel's
// queues, whoever keeps their descriptors, and arrives once and in order. Connections stay, and bytes move on them
// again. WEFT_LONG=1 then does that 20 times, under a steady stream.
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
						if long() && k.replaced(t, a, b).over(t, s) {
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

// pace starts packets both ways, one a millisecond.
func pace(ctx context.Context, t *testing.T, a, b *host, count int, wait time.Duration) (out [2]*probe.Paced) {
	t.Helper()
	ends := [2]probe.Endpoint{{Name: a.name, NS: a.ns, Addr: a.inner(t)}, {Name: b.name, NS: b.ns, Addr: b.inner(t)}}
	for i := range out {
		var err error
		out[i], err = probe.StartPaced(ctx, probe.PacedPlan{From: ends[i], To: ends[1-i], Count: count, Wait: wait})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// flow waits until sent packets went out each way, and more of them came than before.
func flow(t *testing.T, streams [2]*probe.Paced, sent, more int) {
	t.Helper()
	for _, s := range streams {
		_, from := s.Progress()
		await.OK(t, "packets flow", func() error {
			if n, got := s.Progress(); n < sent || got < from+more {
				return fmt.Errorf("%d packets were sent, and %d more came", n, got-from)
			}
			return nil
		})
	}
}

// send sends packets both ways, and returns when all of them wait in queues.
func send(t *testing.T, a, b *host) [2]*probe.Paced {
	t.Helper()
	out := pace(t.Context(), t, a, b, queued, await.Patience)
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
	name  string
	times int
	most  int // packets of a steady stream that may be lost, of what fits into the queues
	// again replaces it, and calls meanwhile, unless that is nil, while nobody reads.
	again func(meanwhile func())
}

func (h *host) kinds(t *testing.T, by string) []kind {
	n := inCounts()
	ends := func(sig syscall.Signal) func(func()) {
		return func(meanwhile func()) {
			h.stop(t, sig)
			if meanwhile != nil {
				meanwhile()
			}
			h.begin(t, by)
		}
	}
	if by == byNobody {
		return []kind{{"SIGTERM", n.restarts, math.MaxInt, ends(syscall.SIGTERM)}, {"SIGKILL", n.restarts, math.MaxInt, ends(syscall.SIGKILL)}}
	}
	return []kind{
		{"SIGTERM", n.restarts, 0, ends(syscall.SIGTERM)}, {"SIGKILL", n.restarts, inHands, ends(syscall.SIGKILL)},
		{"upgrade", n.upgrades, 0, func(meanwhile func()) {
			if err := h.upgradeHeld(t, meanwhile); err != nil {
				t.Error(err)
				return
			}
			h.awaitReady(t)
			h.portsKept(t)
		}},
	}
}

// upgradeHeld upgrades weftd. With meanwhile it executes a script, which waits in weftd's place until meanwhile
// returns, and then executes the new weftd.
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
	script, arrived, gate := filepath.Join(dir, "weftd"), filepath.Join(dir, "arrived"), filepath.Join(dir, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	netns.Script(t, script, fmt.Sprintf("#!/bin/sh\n"+asks+": >%s; read x <%s; exec %[1]s \"$@\"\n", weftd, arrived, gate))
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

// lossesOf has what was lost each time.
type lossesOf struct {
	kind
	lost    []int
	longest []time.Duration // the time without a packet, at the worse one of both ends
	refused int             // packets that the sender's kernel did not take
}

// replaced has weftd replaced in one way as often as is wanted.
func (k kind) replaced(t *testing.T, a, b *host) *lossesOf {
	t.Helper()
	l := &lossesOf{kind: k}
	for range k.times {
		gap := l.once(t, a, b)
		if lost := l.lost[len(l.lost)-1]; lost > k.most && gap < fits {
			t.Errorf("%s: %d lost of what fits into the queues", k.name, lost)
		}
	}
	return l
}

// once counts what is lost of packets both ways while weftd is replaced. gap is the longest time without one.
func (l *lossesOf) once(t *testing.T, a, b *host) (gap time.Duration) {
	t.Helper()
	before := dropsOf(t, a, b)
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	streams := pace(ctx, t, a, b, mostPackets, 3*time.Second)
	packets := inCounts().packets
	flow(t, streams, packets/10, packets/10)
	began := time.Now()
	l.again(nil)
	took := time.Since(began)
	flow(t, streams, packets, 100)
	enough()
	lost := 0
	for i, s := range streams {
		r := s.Wait()
		lost, gap, l.refused = lost+r.Lost, max(gap, r.LongestSilence), l.refused+r.Refused
		if r.Duplicates > 0 || r.Reordered > 0 {
			t.Errorf("%s from %s: %s", l.name, [2]*host{a, b}[i].name, r)
		}
		if r.Lost > 0 && l.most < math.MaxInt {
			t.Logf("%s, from %s: %s, outages %v; it took %v; drops before %v, after %v", l.name, [2]*host{a, b}[i].name, r, r.Outages, took, before, dropsOf(t, a, b))
		}
	}
	l.lost, l.longest = append(l.lost, lost), append(l.longest, gap)
	return gap
}

// over says how it went, and whether packets flow.
func (l *lossesOf) over(t *testing.T, s *streams) bool {
	sum, clean, full := 0, 0, 0
	for i, n := range l.lost {
		if sum += n; n == 0 {
			clean++
		} else if l.longest[i] >= fits {
			full++
		}
	}
	sorted := slices.Sorted(slices.Values(l.longest))
	t.Logf("%s: %d times %d packets each way; %d times none was lost, %d times a queue was full (nobody read for %v and more); %d lost in all, %d at most, %d that the sender could not send; without a packet %v in the middle, %v at most; TCP stood still for %v at most",
		l.name, len(l.lost), inCounts().packets, clean, full, fits, sum, slices.Max(l.lost), l.refused, sorted[len(sorted)/2].Round(100*time.Microsecond), sorted[len(sorted)-1].Round(100*time.Microsecond), s.stall().Round(100*time.Microsecond))
	return !t.Failed()
}

// dropsOf are what queues of the kernel have dropped on both hosts: those of the TUN, and those of the receivers' sockets.
func dropsOf(t *testing.T, hosts ...*host) (all []string) {
	t.Helper()
	for _, h := range hosts {
		links, err := h.ns.Netlink().LinkList()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if n := l.Attrs().Statistics; n != nil && n.TxDropped+n.RxDropped > 0 {
				all = append(all, fmt.Sprintf("%s %s %d out %d in", h.name, l.Attrs().Name, n.TxDropped, n.RxDropped))
			}
		}
		var snmp []byte
		if err := h.ns.Do(func() (err error) { snmp, err = os.ReadFile("/proc/thread-self/net/snmp"); return err }); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(snmp)) {
			if strings.HasPrefix(line, "Udp: ") && strings.ContainsAny(line, "0123456789") {
				all = append(all, h.name+" "+strings.TrimSpace(line))
			}
		}
	}
	return all
}
