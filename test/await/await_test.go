package await

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stub is a test that does not end when it fails but says with what.
type stub struct {
	testing.TB
	said string
}

func (*stub) Helper() {}

func (s *stub) Fatalf(format string, args ...any) {
	s.said = fmt.Sprintf(format, args...)
	panic(s)
}

// failure is what f's test failed with.
func failure(f func(testing.TB)) string {
	s := &stub{}
	func() {
		defer func() { _ = recover() }()
		f(s)
	}()
	return s.said
}

func TestPollsUntilItIsSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, tries := time.Now(), 0
		took := OK(t, "ten seconds", func() error {
			tries++
			if time.Since(start) < 10*time.Second {
				return errors.New("not yet")
			}
			return nil
		})
		if took < 10*time.Second || took > 10*time.Second+250*time.Millisecond || tries > 150 {
			t.Errorf("%d tries in %s", tries, took)
		}
		True(t, "true", func() bool { return true })
		NoDiff(t, func() string { return "" })
		if now := time.Since(start); now != took {
			t.Errorf("what is so at once took %s", now-took)
		}
	})
}

func TestFailsWithTheLastReason(t *testing.T) {
	for _, c := range []struct {
		want string
		f    func(testing.TB)
	}{
		{"1s", func(t testing.TB) { Within(t, time.Second, "x", func() error { return errors.New("no") }) }},
		{"30s", func(t testing.TB) { OK(t, "x", func() error { return errors.New("no") }) }},
		{"30s", func(t testing.TB) { True(t, "x", func() bool { return false }) }},
		{"-a +b", func(t testing.TB) { NoDiff(t, func() string { return "-a +b" }) }},
	} {
		synctest.Test(t, func(*testing.T) {
			if got := failure(c.f); !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// A process that is stopped for longer than the limit between two tries gets another one.
func TestTriesAfterThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		Within(t, time.Second, "x", func() error {
			if tries++; tries == 1 {
				time.Sleep(time.Minute)
				return errors.New("not yet")
			}
			return nil
		})
	})
}
