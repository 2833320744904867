// Package await polls in a test for what is about to be so. It imports nothing of ours, so that the tests of
// every layer can use it.
package await

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Patience is how long a test waits for what should take a second or two: the machine may be busy with
// something else. Nothing is said about how fast the product is.
const Patience = 30 * time.Second

// Timers is the limit for what takes ten seconds or more by the product's own timers, such as a loss that
// counts only after it has lasted, or a write that is tried again after a pause.
const Timers = 2 * time.Minute

// OK polls ok until it returns nil, for as long as Patience, and returns how long that took. It fails the
// test with the error of the last try.
func OK(t testing.TB, what string, ok func() error) time.Duration {
	t.Helper()
	return Within(t, Patience, what, ok)
}

// Within is OK with another limit. It polls the more seldom the longer it takes: what is there at once costs
// no wait, and what takes long costs no processor. There is always a try after the limit, so that a test that
// was not scheduled for that long does not fail for it.
func Within(t testing.TB, limit time.Duration, what string, ok func() error) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		over := time.Since(start) > limit
		err := ok()
		took := time.Since(start)
		switch {
		case err == nil:
			return took
		case over:
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		}
		time.Sleep(min(max(took/10, time.Millisecond), 250*time.Millisecond))
	}
}

// True is OK for a condition that has nothing to say about itself.
func True(t testing.TB, what string, is func() bool) time.Duration {
	t.Helper()
	return OK(t, what, func() error {
		if !is() {
			return errors.New("it is not so")
		}
		return nil
	})
}

// NoDiff is OK for a comparison in words: diff returns "" when there is no difference, as cmp.Diff does.
func NoDiff(t testing.TB, diff func() string) time.Duration {
	t.Helper()
	return OK(t, "difference", func() error {
		if d := diff(); d != "" {
			return errors.New(d)
		}
		return nil
	})
}

// Context is a context for one step of a test. It ends after limit, and with the test.
func Context(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// Stopped waits until each thread of a process has stopped that was sent SIGSTOP: the kernel stops them one
// after the other, and the last ones may answer for a while.
func Stopped(t testing.TB, pid int) {
	t.Helper()
	OK(t, fmt.Sprintf("process %d to stop", pid), func() error {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return errors.New("it has no threads")
		}
		for _, f := range files {
			stat, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			if i := bytes.LastIndex(stat, []byte(") ")); i < 0 || !bytes.HasPrefix(stat[i+2:], []byte("T")) {
				return fmt.Errorf("%s: %s", f, stat)
			}
		}
		return nil
	})
}
