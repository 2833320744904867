package events_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weft/cmd/internal/events"
	"weft/routing/event"
)

// kept runs a Log in dir while do adds to it, and returns what Run said of faults.
func kept(t *testing.T, dir string, do func(l *events.Log)) (faults []error) {
	t.Helper()
	l := events.NewLog(dir)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { // waited for below
		defer close(done)
		l.Run(ctx, func(err error) { faults = append(faults, err) })
	}()
	do(l)
	cancel()
	<-done
	return faults
}

func read(t *testing.T, dir string) []events.Event {
	t.Helper()
	l, err := events.Read(dir, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// What is logged is in the history with its kind, also after a restart, in order, and without debug messages.
func TestTheHistoryOutlivesTheProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	for range 2 {
		if faults := kept(t, dir, func(l *events.Log) {
			log := slog.New(events.NewHandler(slog.NewTextHandler(&bytes.Buffer{}, nil), l)).With("component",
				"keeper")
			log.Info("weftd starts", "event", events.Started, "version", "v1")
			log.Debug("not ready")
			log.Warn("peer not used", "event", event.PeerUnused, "peer", "db1", "reason", errors.New("it has no MAC"))
			log.Error("of which nobody has thought")
		}); faults != nil {
			t.Fatal(faults)
		}
	}
	got := read(t, dir)
	if len(got) != 6 || got[0].Kind != events.Started || got[1].Kind != events.Kind(event.PeerUnused) ||
		got[2].Kind != events.Fault || got[2].Level != "error" ||
		got[1].Details["reason"] != "it has no MAC" || got[1].Details["component"] != "keeper" ||
		got[3].Kind != events.Started {
		t.Fatalf("%+v", got)
	}
	for i := range got[1:] {
		if !got[i+1].Time.After(got[i].Time) {
			t.Errorf("event %d is not after the one before it", i+1)
		}
	}
	if later, err := events.Read(dir, got[3].Time); err != nil || len(later) != 2 {
		t.Errorf("%d events, %v", len(later), err)
	}
	if info, err := os.Stat(filepath.Join(dir, events.File)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if _, err := events.Read(t.TempDir(), time.Time{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no history: %v", err)
	}
}

// A flood of one kind leaves the others theirs, and how many were left out is said.
func TestAFloodIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		kept(t, dir, func(l *events.Log) {
			for range 1000 {
				l.Add(events.Event{Kind: events.Fault, Message: "again"})
			}
			l.Add(events.Event{Kind: events.Ready, Message: "ready"})
			time.Sleep(time.Minute)
			l.Add(events.Event{Kind: events.Fault, Message: "again"})
		})
		got := read(t, dir)
		if len(got) != 22 || got[20].Kind != events.Ready || got[21].Details["left_out"] != "980" {
			t.Errorf("%d events, the last %+v", len(got), got[len(got)-1])
		}
	})
}

// The files do not grow, what is newest is there, and one event takes no more than a part of a page.
func TestTheHistoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		const n = 1200
		kept(t, dir, func(l *events.Log) {
			for i := range n {
				l.Add(events.Event{Kind: events.Note, Message: fmt.Sprint(i, strings.Repeat("ü", 5000)),
					Details: map[string]string{"x": strings.Repeat("y", 5000)}})
				time.Sleep(10 * time.Second)
			}
		})
		total := int64(0)
		for _, name := range []string{events.File, events.Former} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			total += info.Size()
		}
		got := read(t, dir)
		if total > 512<<10 || total < 256<<10 || !strings.HasPrefix(got[len(got)-1].Message, fmt.Sprint(n-1)) ||
			len(got) < 250 {
			t.Errorf("%d bytes, %d events", total, len(got))
		}
	})
}

// A disk that cannot be written is said once, and nothing waits for it; what was cut off is passed over.
func TestAFaultyDiskCostsTheHistoryAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		block := filepath.Join(dir, events.File)
		if err := os.Mkdir(block, 0o700); err != nil {
			t.Fatal(err)
		}
		faults := kept(t, dir, func(l *events.Log) {
			for range 3 {
				l.Add(events.Event{Kind: events.Note, Message: "lost"})
				time.Sleep(2 * time.Minute)
			}
			if err := errors.Join(os.Remove(block), os.WriteFile(block, []byte("{\"time\":\"cut o"), 0o600)); err != nil {
				t.Error(err)
			}
			l.Add(events.Event{Kind: events.Note, Message: "kept"})
			time.Sleep(time.Second)
		})
		if len(faults) != 2 || faults[0] == nil || faults[1] != nil {
			t.Errorf("said %v", faults)
		}
		if got := read(t, dir); len(got) != 1 || got[0].Message != "kept" {
			t.Errorf("%+v", got)
		}
	})
}

// What somebody, or a crash, has left in the files hides nothing that came after it; nor does a clock that
// was set back.
func TestRubbishAndClocksHideNothing(t *testing.T) {
	future := []byte(`{"time":"2099-01-02T03:04:05Z","kind":"ready","level":"info","message":"in the future"}` +
		"\n")
	for name, what := range map[string][]byte{
		"future":       future,
		"zeros":        make([]byte, 100<<10),
		"long line":    append(bytes.Repeat([]byte("x"), 150<<10), '\n'),
		"huge":         bytes.Repeat([]byte("rubbish\n"), 1<<20),
		"huge, a line": bytes.Repeat([]byte("x"), 5<<20),
		"nested":       append(bytes.Repeat([]byte("["), 60<<10), '\n'),
	} {
		for _, file := range []string{events.File, events.Former} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, file), what, 0o600); err != nil {
				t.Fatal(err)
			}
			var faults []error
			for i := range 2 {
				faults = append(faults, kept(t, dir, func(l *events.Log) {
					l.Add(events.Event{Kind: events.Note, Message: fmt.Sprint("kept ", i)})
				})...)
			}
			got := read(t, dir)
			if len(faults) > 0 || len(got) < 2 || got[len(got)-2].Message != "kept 0" ||
				got[len(got)-1].Message != "kept 1" {
				t.Errorf("%s in %s: %v, %+v", name, file, faults, got)
			}
		}
	}
	pipe := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(pipe, events.File), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := events.Read(pipe, time.Time{}); err == nil {
		t.Error("a pipe is read")
	}
}

func TestAfterGoesByTheOrder(t *testing.T) {
	at := func(second int64, message string) events.Event {
		return events.Event{Time: time.Unix(second, 0), Kind: events.Note, Message: message}
	}
	all := []events.Event{at(100, "a"), at(200, "b"), at(50, "c"), at(51, "d")}
	if got := events.After(all, all[1]); len(got) != 2 || got[0].Message != "c" {
		t.Errorf("%+v", got)
	}
	if got := events.After(all, at(1, "gone")); len(got) != 4 {
		t.Errorf("%+v", got)
	}
	if got := events.After(all, all[3]); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}
