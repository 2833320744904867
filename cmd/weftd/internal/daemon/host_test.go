package daemon

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/routing"
	"weft/routing/presence"
)

// Only another weftd keeps this one from starting. If a claim fails for any other reason, weftd goes on and
// says so.
func TestAClaimThatCannotBeMadeIsNoReasonToEnd(t *testing.T) {
	k, err := routing.OpenKernel()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	var log strings.Builder
	d := &Daemon{log: slog.New(slog.NewTextHandler(&log, nil))}
	defer func() { _ = d.process.claim.Close() }()
	f := Network{config: parse(t, `{"Network":"198.18.252.0/24"}`)}

	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := was
	none.Cur = 0 // no descriptor more
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	err = d.claimHost(t.Context(), k, f)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Errorf("without a descriptor: %v", err)
	}
	if notes := d.degraded.notes(); len(notes) != 1 || !strings.Contains(notes[0], unix.EMFILE.Error()) ||
		!strings.Contains(log.String(), "level=WARN") {
		t.Errorf("notes %q, log %s", notes, &log)
	}
	if err := d.claimHost(t.Context(), k, f); err != nil || len(d.degraded.notes()) != 0 {
		t.Errorf("with descriptors again: %v, %q", err, d.degraded.notes())
	}

	second := &Daemon{log: d.log}
	impatient, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := second.claimHost(impatient, k, f); !errors.As(err, new(*presence.HostTakenError)) {
		t.Errorf("beside another: %v", err)
	}
}
