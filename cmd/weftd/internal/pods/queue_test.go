package pods

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/podport"
)

// A pod that makes its queue longer than weftd's own gets that length again. The log says so at once, and not
// as often as the pod does it.
func TestQueuesStayShort(t *testing.T) {
	before, dir := descriptors(t), t.TempDir()
	var log bytes.Buffer
	s, _ := attached(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	now := time.Now()
	if next := s.shorten(now); next != patience {
		t.Errorf("without pods it looks again after %s", next)
	}
	for id, addr := range map[string]string{"long": "10.42.1.5", "short": "10.42.1.6"} {
		fds := []int{descriptor(t)}
		for _, name := range podport.Settings() {
			fd, err := unix.Open(filepath.Join(dir, id+name), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			fds = append(fds, fd)
		}
		if _, err := s.Attach(request(id, addr), fds); err != nil {
			t.Fatal(err)
		}
	}
	file := func(id string) string { return filepath.Join(dir, id+podport.Settings()[1]) }
	if err := os.WriteFile(file("short"), []byte("500\n"), 0); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, 1, 2} { // lines by then
		if err := os.WriteFile(file("long"), []byte("9000\n"), 0); err != nil {
			t.Fatal(err)
		}
		if next := s.shorten(now.Add(time.Duration(i) * sayLongEvery / 2)); next != watchEvery {
			t.Errorf("it looks again after %s", next)
		}
		for id, length := range map[string]string{"long": "1000", "short": "500"} {
			if got, err := os.ReadFile(file(id)); err != nil || strings.TrimSpace(string(got)) != length {
				t.Errorf("%s has %q, want %s (%v)", id, got, length, err)
			}
		}
		if got := strings.Count(log.String(), "event=pod_queue "); got != want {
			t.Errorf("%d lines say so, want %d", got, want)
		}
	}
	for _, p := range s.List().Pods {
		if _, err := s.Detach(p.Key); err != nil {
			t.Error(err)
		}
	}
	if now := descriptors(t); now != before {
		t.Errorf("%d descriptors are open, before it were %d", now, before)
	}
}
