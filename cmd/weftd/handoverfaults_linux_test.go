package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/events"
	"weft/cmd/weftd/internal/handover"
	"weft/test/await"
)

// At 1,000 packets a second a new weftd that dies or stands still where nobody reads costs nothing: the old one goes on. TestACrashAtEachStep has all
// other steps.
func TestANewWeftdThatFailsCostsNothing(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.start(t)
	a.awaitReady(t)
	for _, fault := range []string{"crash:new-yours", "hang:new-yours"} {
		b.env = []string{handover.FaultVariable + "=" + fault}
		b.start(t)
		before := b.awaitReady(t)
		a.reaches(t, b)
		var lost int64
		for range 3 { // a machine that is busy for half a second fills a queue
			there, back := a.flows(t, b, 7001), b.flows(t, a, 7002)
			if done, err := b.upgrade(t); err == nil || !strings.Contains(err.Error(), "goes on") {
				t.Errorf("%s: %+v %v", fault, done, err)
			}
			if s := b.awaitReady(t); s.PID != before.PID {
				t.Errorf("%s: pid %d, before %d", fault, s.PID, before.PID)
			}
			if lost = there.over(t) + back.over(t); lost == 0 || strings.HasPrefix(fault, "hang") {
				break // while the new one may still begin, nobody reads for longer than a queue lasts
			}
		}
		if lost != 0 && !strings.HasPrefix(fault, "hang") {
			t.Errorf("%s: %d lost", fault, lost)
		}
		b.stop(t, syscall.SIGTERM)
	}
}

// slow is so seldom that no queue is full before somebody has waited for twenty seconds.
const slow = 50 * time.Millisecond

// crash is what is so once somebody has crashed at a step.
type crash struct {
	step string
	// most is how many packets the process that is killed may take with it, as it had read and not yet written them: those of one batch.
	most int64
	// after says who serves: the old weftd, the new one, or one that a supervisor starts.
	after string
}

func crashes() []crash {
	return []crash{
		{"new-asked", 0, "old"}, {"new-given", 0, "old"}, {"new-prepared", 0, "old"}, {"new-ready", 0, "old"}, {"new-yours", 0, "old"},
		{"new-reads", 3, "old"}, {"new-flowing", 3, "old"}, {"new-alone", 3, "another"},
		{"old-asked", 3, "new"}, {"old-given", 3, "new"}, {"old-ready", 3, "new"},
		{"old-paused", 0, "new"}, {"old-yours", 0, "new"}, {"old-flowing", 0, "new"}, {"old-bye", 0, "new"},
	}
}

// Whoever crashes at whatever step of a hand-over, somebody goes on with what waits in the queues, and packets flow both ways. A new weftd that
// crashes before the old one has ended costs a pause; one that crashes later is the weftd that serves, and is started again.
func TestACrashAtEachStep(t *testing.T) {
	t.Parallel()
	var steps []string
	for _, c := range crashes() {
		steps = append(steps, c.step)
	}
	if !slices.Equal(steps, handover.Steps()) {
		t.Errorf("steps %v, and there are %v", steps, handover.Steps())
	}
	const labs = 3
	for n := range labs {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			a, b := pair(t)
			a.start(t)
			a.awaitReady(t)
			for i, c := range crashes() {
				if i%labs == n {
					crashAt(t, a, b, c)
				}
			}
		})
	}
}

func crashAt(t *testing.T, a, b *host, c crash) {
	t.Helper()
	var lost int64
	for range 3 { // a machine that is too busy may have more than a batch in hand
		b.env = []string{handover.FaultVariable + "=crash:" + c.step}
		b.start(t)
		before := b.awaitReady(t)
		a.reaches(t, b)
		b.portsKept(t)
		there, back := a.flowsEvery(t, b, 7001, slow), b.flowsEvery(t, a, 7002, slow)
		passes := func(by int64) {
			t.Helper()
			n, m := there.got.Load()+by, back.got.Load()+by
			await.OK(t, "packets flow beside a crash at "+c.step, func() error {
				if there.got.Load() < n || back.got.Load() < m {
					return errors.New("too few yet")
				}
				return nil
			})
		}
		passes(5)
		began := time.Now()
		_, err := b.upgrade(t)
		if goes := err != nil && strings.Contains(err.Error(), "goes on"); goes != (c.after == "old") {
			t.Errorf("%s: %v", c.step, err)
		}
		if c.after != "old" {
			_, _ = b.cmd.Process.Wait() // that it crashed is what is asked for; a successor may have its output
			b.cmd = nil
		}
		if c.after == "another" {
			b.env = nil
			b.start(t)
		}
		var s control.Status
		await.OK(t, "somebody serves after a crash at "+c.step, func() error {
			s = b.awaitReady(t)
			if (s.PID == before.PID) != (c.after == "old") {
				return fmt.Errorf("pid %d, before %d", s.PID, before.PID)
			}
			return nil
		})
		passes(5)
		lost = there.over(t) + back.over(t)
		t.Logf("%s: %s goes on, %d of %d lost, %v", c.step, c.after, lost, there.sent.Load()+back.sent.Load(), time.Since(began).Round(time.Millisecond))
		if b.cmd != nil {
			b.stop(t, syscall.SIGTERM)
		} else {
			b.killed(t, s.PID)
		}
		if lost <= c.most {
			return
		}
	}
	t.Errorf("%s: %d lost", c.step, lost)
}

// portsKept waits until somebody keeps the host's ports.
func (h *host) portsKept(t *testing.T) {
	t.Helper()
	await.OK(t, "its ports are kept", func() error {
		if s, err := h.status(t); err != nil || s.Custody == nil || s.Custody.Ports != h.ports || s.Custody.Fault != "" {
			return fmt.Errorf("%+v %w", s.Custody, err)
		}
		return nil
	})
}

// killed kills a weftd that is no child of this process, and waits until nobody answers at its socket.
func (h *host) killed(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("pid %d: %v", pid, err)
	}
	await.OK(t, "it is gone", func() error {
		if s, err := h.status(t); err == nil {
			return fmt.Errorf("pid %d answers", s.PID)
		}
		return nil
	})
}

// A weftd that is asked to stop once another one, which it cannot end, has everything and may begin to read leaves everything as it is, and the other one
// goes on with it.
func TestAskedToStopWhileItHandsOver(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.start(t)
	a.awaitReady(t)
	var log buffer
	b.env = []string{handover.FaultVariable + "=" + handover.Wait}
	old := b.contained(t, &log)
	b.awaitReady(t)
	a.reaches(t, b)
	there, back := a.flowsEvery(t, b, 7001, slow), b.flowsEvery(t, a, 7002, slow)
	b.env = []string{handover.FaultVariable + "=hang:new-yours"}
	b.start(t)
	next := b.cmd.Process.Pid
	await.OK(t, "the new one may read, and stands still", func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", next))
		if err == nil && !strings.Contains(string(stat), ") T ") {
			err = fmt.Errorf("%s", stat)
		}
		return err
	})
	if err := old.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := old.Wait(); err != nil {
		t.Errorf("the old one: %v\n%s", err, log.String())
	}
	if !strings.Contains(log.String(), "the_other_goes_on=true") {
		t.Errorf("the old one's log:\n%s", log.String())
	}
	if err := syscall.Kill(next, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if s := b.awaitReady(t); s.PID != next {
		t.Errorf("pid %d serves, want %d", s.PID, next)
	}
	n, m := there.got.Load()+5, back.got.Load()+5
	await.OK(t, "packets flow", func() error {
		if there.got.Load() < n || back.got.Load() < m {
			return errors.New("too few yet")
		}
		return nil
	})
	if lost := there.over(t) + back.over(t); lost != 0 {
		t.Errorf("%d lost", lost)
	}
}

// A weftd that is asked to stop when another one has just taken its place, and it has only to become what waits for that one, passes it on: it does
// not end as one that has stopped, and leave the other one to nobody.
func TestAskedToStopAtTheLastStep(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.start(t)
	a.awaitReady(t)
	b.env = []string{handover.FaultVariable + "=hang:old-bye"}
	b.start(t)
	first := b.awaitReady(t).PID
	t.Cleanup(func() { b.ended(t) })
	asked := make(chan error, 1)
	go func() { _, err := b.upgrade(t); asked <- err }() // ends with the process that it asks
	var next []string
	await.OK(t, "it has handed over, and stands still", func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", first))
		if err == nil && !strings.Contains(string(stat), ") T ") {
			err = fmt.Errorf("%s", stat)
		}
		next = nil
		children, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", first))
		for _, c := range children {
			b, _ := os.ReadFile(c) // a thread may have ended
			for _, pid := range strings.Fields(string(b)) {
				if line, err := os.ReadFile("/proc/" + pid + "/cmdline"); err == nil && !strings.Contains(string(line), "\x00holder\x00") {
					next = append(next, pid)
				}
			}
		}
		return err
	})
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := b.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	_ = b.cmd.Wait() // the status is what is asked for
	if code := b.cmd.ProcessState.ExitCode(); code != 0 || len(next) != 1 {
		t.Errorf("it ended with %d; its children were %v", code, next)
	}
	for _, pid := range next {
		if _, err := os.Stat("/proc/" + pid); err == nil {
			t.Errorf("the one that took its place (pid %s) lives", pid)
			if n, err := strconv.Atoi(pid); err == nil {
				_ = syscall.Kill(n, syscall.SIGKILL) // else it would outlive the test
			}
		}
	}
	b.cmd = nil
	<-asked // an answer or none: both are an end
}

// many is how many hand-overs TestManyHandOversLeaveNothing has.
func many() int {
	if long() {
		return 1000
	}
	return 8
}

// Hand-overs leave no link, rule, descriptor or file behind, and neither the holder nor the minder grows.
func TestManyHandOversLeaveNothing(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.start(t)
	a.awaitReady(t)
	b.start(t)
	pid := b.awaitReady(t).PID
	t.Cleanup(func() { b.ended(t) })
	a.reaches(t, b)
	var before string
	var grown [2]int
	for n := range many() {
		done, err := b.upgrade(t)
		if err != nil || done.FromPID != pid || done.Ports != 2 {
			t.Fatalf("hand-over %d: %+v %v, and pid %d served before", n, done, err, pid)
		}
		pid = done.PID
		await.OK(t, "the next one may come", func() error { return b.mayBeReplaced(pid) })
		b.awaitReady(t)
		b.portsKept(t) // until it has told the holder there is no custody to look at
		switch n {     // what comes with the first ones is there once
		case 2:
			await.OK(t, "it is at rest", func() error { // what comes and goes is not counted
				was := before
				if before = b.traces(t) + files(t, b.dir); before != was {
					return errors.New(before)
				}
				return nil
			})
			grown[0] = b.resident(t)
		default:
			grown[1] = b.resident(t)
		}
	}
	await.OK(t, "nothing is left", func() error {
		if after := b.traces(t) + files(t, b.dir); after != before {
			return fmt.Errorf("%s; after the third hand-over %s", after, before)
		}
		return nil
	})
	t.Logf("%d hand-overs: %s; holder and minder had %d KiB after the third, and %d KiB at last", many(), before, grown[0], grown[1])
	if grown[1] > grown[0]+16<<10 { // what Go's collector makes of it differs by less
		t.Errorf("holder and minder have %d KiB, after the third hand-over %d KiB", grown[1], grown[0])
	}
	a.reaches(t, b)
	if code := b.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("the process that was started ended with %d", code)
	}
}

// files says how many files there are below dir, of which the events may have been rotated.
func files(t *testing.T, dir string) string {
	t.Helper()
	n := 0
	if err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, _ error) error {
		if e != nil && e.Name() != events.Former {
			n++
		}
		return nil // what goes just now is no fault
	}); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(", %d files", n)
}

// resident is the memory of the holder and the minder, in KiB.
func (h *host) resident(t *testing.T) (sum int) {
	t.Helper()
	s, err := h.status(t)
	if err != nil || s.Custody == nil {
		t.Fatal(s.Custody, err)
	}
	for _, pid := range []int{s.Custody.PID, h.cmd.Process.Pid} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, ok := strings.Cut(string(b), "RssAnon:")
		n, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "kB", 2)[0]))
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		sum += n
	}
	return sum
}
