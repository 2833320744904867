package custody

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/await"
)

// running has c do its part until the test ends.
func running(t *testing.T, c *Custody) {
	t.Helper()
	run := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { run <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-run; err != nil {
			t.Error(err)
		}
	})
}

// While a holder is stopped the first who wants something kept is told so after a moment, and the others at once: nothing is asked of it by those
// who wait. When it goes on it is given everything, and what is no more is not there.
func TestNobodyWaitsForAStoppedHolder(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	running(t, c)
	r, _ := pipe(t)
	keepOne(t, c, "a", "", r)
	keepOne(t, c, "z", "", r)
	pid := c.Status().PID
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGCONT) }) // it may have ended
	await.OK(t, "the holder is stopped", func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err == nil && !strings.Contains(string(stat), ") T ") {
			err = fmt.Errorf("it is not: %s", stat)
		}
		return err
	})
	for i := range 40 { // with a wait for each this would take longer than a test may
		err := c.Keep(t.Context(), fmt.Sprint(i), nil, []int{r})
		if !errors.Is(err, errSilent) || !strings.Contains(err.Error(), fmt.Sprintf("kill -CONT %d", pid)) {
			t.Fatalf("item %d: %v", i, err)
		}
	}
	c.Forget("a")
	c.Forget("0")
	if s := c.Status(); s.Items != 40 || !strings.Contains(s.Fault, "does not answer") {
		t.Errorf("%+v", s)
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await.OK(t, "the holder has what it is to have", func() error {
		rep, err := n.look()
		if s := c.Status(); err == nil && (rep.Items != 40 || s.Items != 40 || s.Fault != "" || s.PID != pid) {
			err = fmt.Errorf("the holder %+v, weftd %+v", rep, s)
		}
		return err
	})
}

// That no holder could be had is not said any more once there is one, or once there is nothing to keep.
func TestAFaultThatIsMendedIsNotSaid(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	r, _ := pipe(t)
	keepOne(t, c, "a", "", r)
	broken := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.faults[""] = errors.New("no process could be started")
		c.endSession()
		c.publish()
	}
	broken()
	n.ended()
	keepOne(t, c, "b", "", r)
	if s := c.Status(); s.Fault != "" || s.By != ByHolder {
		t.Errorf("with a holder: %+v", s)
	}
	broken()
	c.Forget("a")
	c.Forget("b")
	if s := c.Status(); s.Fault != "" {
		t.Errorf("with nothing to keep: %+v", s)
	}
	n.ended()
}
