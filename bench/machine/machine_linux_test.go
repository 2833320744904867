package machine

import (
	"os"
	"strings"
	"testing"
)

func TestLook(t *testing.T) {
	w, err := Observe()
	if err != nil || !strings.Contains(w.String(), "CPUs (") || !strings.HasPrefix(w.Load(), "loadavg ") {
		t.Errorf("%+v, %v", w, err)
	}
	m, err := w.Since()
	if err != nil || !strings.Contains(m.Load(), "stolen") || m.Busy < 0 || m.Busy > 1 || m.Stolen < 0 ||
		m.Stolen > 1 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestResident(t *testing.T) {
	now, peak, err := Resident(os.Getpid())
	if err != nil || now < 1<<20 || peak < now {
		t.Errorf("%d, %d, %v", now, peak, err)
	}
	if _, _, err := Resident(1 << 30); err == nil {
		t.Error("a process that does not exist has memory")
	}
}
