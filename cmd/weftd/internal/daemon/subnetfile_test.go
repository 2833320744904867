package daemon

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/options"
	"weft/lease/subnetenv"
)

// Whatever happens to the subnet file, it is written again; as long as that fails there is a reason,
// which is logged once.
func TestSubnetFileIsPutBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	path := filepath.Join(dir, "subnet.env")
	var log bytes.Buffer
	g := &overlay{wake: make(chan struct{}, 1)}
	d := &Daemon{cfg: options.Config{SubnetFile: path}, log: slog.New(slog.NewTextHandler(&log, nil))}
	d.setOverlay(g)
	f := subnetenv.File{Networks: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")},
		Subnet: netip.MustParsePrefix("10.42.7.1/24"), MTU: 1472}
	look := func() bool { // reports whether apply is to look at the file, and does so
		d.keepSubnetFile()
		select {
		case <-g.wake:
			_, before := g.state()
			d.putSubnetFile(g, f, before)
			return true
		default:
			return false
		}
	}
	why := func() string { _, why := g.state(); return why }
	if look() {
		t.Error("woken before there was anything to write")
	}
	d.putSubnetFile(g, f, "not written yet")
	if look() || why() != "" {
		t.Fatalf("woken for a file that is as it should be, %q", why())
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, harm := range map[string]func() error{
		"deleted":            func() error { return os.Remove(path) },
		"with its directory": func() error { return os.RemoveAll(dir) },
		"overwritten":        func() error { return os.WriteFile(path, []byte("FLANNEL_MTU=1400\n"), 0o644) },
		"emptied":            func() error { return os.Truncate(path, 0) },
		"of the same values": func() error {
			return os.WriteFile(path, append(good, "# FLANNEL_MTU=1400\n"...), 0o644)
		},
		"too large": func() error { return os.Truncate(path, 1<<20) },
	} {
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		woken := look()
		if now, err := os.ReadFile(path); !woken || err != nil || !bytes.Equal(now, good) || why() != "" {
			t.Errorf("%s: woken %v, %q, %v, %q", name, woken, now, err, why())
		}
	}
	if !strings.Contains(log.String(), "event=subnet_file ") {
		t.Errorf("the log does not say that it was put back:\n%s", &log)
	}
	log.Reset()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o644); err != nil { // where the directory has to be
		t.Fatal(err)
	}
	for range 3 {
		if !look() || !strings.Contains(why(), path) && !strings.Contains(why(), dir) {
			t.Errorf("not tried again, or no reason: %q", why())
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d lines for one fault:\n%s", n, &log)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if held, err := subnetenv.Holds(path, f); held || err != nil {
		t.Fatalf("held %v, %v", held, err)
	}
	woken := look()
	if held, err := subnetenv.Holds(path, f); !woken || why() != "" || !held || err != nil {
		t.Errorf("not written once that is possible again: %q", why())
	}
}

// Without descriptors nobody can look at the subnet file. What was as it should be counts as such, so that
// the node stays ready.
func TestSubnetFileThatCannotBeLookedAt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "subnet.env")
	g := &overlay{wake: make(chan struct{}, 1)}
	d := &Daemon{cfg: options.Config{SubnetFile: path}, log: slog.New(slog.DiscardHandler)}
	d.setOverlay(g)
	f := subnetenv.File{Networks: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")},
		Subnet: netip.MustParsePrefix("10.42.7.1/24"), MTU: 1472}
	d.putSubnetFile(g, f, "not written yet")
	without := func(do func()) {
		t.Helper()
		var was unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max}); err != nil {
			t.Fatal(err)
		}
		do()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
	}
	without(func() {
		d.keepSubnetFile()
		d.putSubnetFile(g, f, "") // as when peers change
	})
	if _, why := g.state(); why != "" || len(g.wake) != 0 {
		t.Errorf("without descriptors: %q, woken %d times", why, len(g.wake))
	}
	f.MTU = 1400 // another one that has to be written is written later, and said
	without(func() { d.putSubnetFile(g, f, "") })
	if _, why := g.state(); why == "" {
		t.Error("it counts as written")
	}
	d.putSubnetFile(g, f, "")
	if held, err := subnetenv.Holds(path, f); !held || err != nil {
		t.Errorf("%v, %v", held, err)
	}
}
