package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft/cmd/internal/custody"
	"weft/cmd/internal/systemdtest"
	"weft/test/await"
	"weft/test/lab/probe"
)

// counts are how often a weftd is replaced in each way, and how many packets there are of each time, one each millisecond and direction.
type counts struct{ upgrades, restarts, packets int }

func inCounts() counts {
	if long() {
		packets, err := strconv.Atoi(cmp.Or(os.Getenv("WEFT_PACKETS"), "10000"))
		if err != nil {
			packets = 10_000
		}
		return counts{20, 20, packets}
	}
	return counts{1, 1, 1500}
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

// What is sent while weftd is replaced, is stopped, or is killed, and started again, waits in queues, and arrives, whoever keeps the descriptors.
// Connections stay, and bytes move on them again. With WEFT_LONG=1 that happens 20 times, on all paths side by side, and also
// where nobody keeps anything, which is only counted.
func TestNothingIsLostThatFitsIntoTheQueues(t *testing.T) {
	t.Parallel()
	for name, backend := range carried() {
		t.Run(name, func(t *testing.T) {
			if long() {
				t.Parallel()
			}
			a, b := pairOf(t, backend)
			a.start(t)
			a.awaitReady(t)
			for _, by := range keepers(name) {
				b.begin(t, by)
				a.reaches(t, b)
				s := a.streams(t, b)
				for _, k := range b.kinds(t, by) {
					if k.replaced(t, a, b, by).over(t, by, s) {
						s.move(t)
					}
				}
				s.end(t)
				b.stop(t, syscall.SIGTERM)
			}
		})
	}
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
	most  int // packets that may be lost, of what fits into the queues
	again func()
}

func (h *host) kinds(t *testing.T, by string) []kind {
	n := inCounts()
	ends := func(sig syscall.Signal) func() { return func() { h.stop(t, sig); h.begin(t, by) } }
	if by == byNobody {
		return []kind{{"SIGTERM", n.restarts, math.MaxInt, ends(syscall.SIGTERM)}, {"SIGKILL", n.restarts, math.MaxInt, ends(syscall.SIGKILL)}}
	}
	return []kind{
		{"SIGTERM", n.restarts, 0, ends(syscall.SIGTERM)}, {"SIGKILL", n.restarts, inHands, ends(syscall.SIGKILL)},
		{"upgrade", n.upgrades, 0, func() {
			if _, err := h.upgrade(t, "weftd"); err != nil {
				t.Error(err)
				return
			}
			h.awaitReady(t)
			h.portsKept(t)
		}},
	}
}

// lossesOf has what was lost each time.
type lossesOf struct {
	kind
	lost    []int
	longest []time.Duration // the time without a packet, at the worse one of both ends
	refused int             // packets that the sender's kernel did not take
}

// replaced has weftd replaced in one way as often as is wanted. In make test a machine that is busy may try thrice.
func (k kind) replaced(t *testing.T, a, b *host, by string) *lossesOf {
	t.Helper()
	l := &lossesOf{kind: k}
	for range k.times {
		for try := range 3 {
			gap := l.once(t, a, b)
			lost := l.lost[len(l.lost)-1]
			if lost > k.most && gap < fits && (long() || try == 2) {
				t.Errorf("%s, kept by %s: %d lost of what fits into the queues", k.name, by, lost)
			}
			if lost <= k.most || long() {
				break
			}
		}
	}
	return l
}

// once counts what is lost of packets both ways while weftd is replaced. gap is the longest time without one.
func (l *lossesOf) once(t *testing.T, a, b *host) (gap time.Duration) {
	t.Helper()
	ends := [2]probe.Endpoint{{Name: a.name, NS: a.ns, Addr: a.inner(t)}, {Name: b.name, NS: b.ns, Addr: b.inner(t)}}
	before := dropsOf(t, a, b)
	var streams [2]*probe.Paced
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	for i := range streams {
		var err error
		if streams[i], err = probe.StartPaced(ctx, probe.PacedPlan{From: ends[i], To: ends[1-i], Count: mostPackets, Wait: 3 * time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	passed := func(sent, more int) {
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
	packets := inCounts().packets
	passed(packets/10, packets/10)
	began := time.Now()
	l.again()
	took := time.Since(began)
	passed(packets, 100)
	enough()
	lost := 0
	for i, s := range streams {
		r := s.Wait()
		lost, gap, l.refused = lost+r.Lost, max(gap, r.LongestSilence), l.refused+r.Refused
		if r.Duplicates > 0 || r.Reordered > 0 {
			t.Errorf("%s from %s: %s", l.name, ends[i].Name, r)
		}
		if r.Lost > 0 && l.most < math.MaxInt {
			t.Logf("%s, from %s: %s, outages %v; it took %v; drops before %v, after %v", l.name, ends[i].Name, r, r.Outages, took, before, dropsOf(t, a, b))
		}
	}
	l.lost, l.longest = append(l.lost, lost), append(l.longest, gap)
	return gap
}

// over says how it went, and whether packets flow.
func (l *lossesOf) over(t *testing.T, by string, s *streams) bool {
	sum, clean, full := 0, 0, 0
	for i, n := range l.lost {
		if sum += n; n == 0 {
			clean++
		} else if l.longest[i] >= fits {
			full++
		}
	}
	sorted := slices.Sorted(slices.Values(l.longest))
	t.Logf("%s, kept by %s: %d times %d packets each way; %d times none was lost, %d times a queue was full (nobody read for %v and more); %d lost in all, %d at most, %d that the sender could not send; without a packet %v in the middle, %v at most; TCP stood still for %v at most",
		l.name, by, len(l.lost), inCounts().packets, clean, full, fits, sum, slices.Max(l.lost), l.refused, sorted[len(sorted)/2].Round(100*time.Microsecond), sorted[len(sorted)-1].Round(100*time.Microsecond), s.stall().Round(100*time.Microsecond))
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
