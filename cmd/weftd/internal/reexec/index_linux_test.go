package reexec

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/custody"
	"weft/cmd/internal/rights"
)

// TestTheProcessNumberStays: the next program must not take descriptors from 3 on for the service manager's,
// and goes on to serve the watchdog.
func TestTheProcessNumberStays(t *testing.T) {
	got := environment([]string{"LISTEN_PID=7", "LISTEN_FDS=2", "LISTEN_FDNAMES=a:b", "WATCHDOG_PID=7",
		"WATCHDOG_USEC=1", variable + "=9", "WEFT_CONFINED=files"})
	if want := []string{"WATCHDOG_PID=7", "WATCHDOG_USEC=1", "WEFT_CONFINED=files"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestNoChildGetsTheDescriptors starts programs while a new weftd is executed again and again, in vain.
func TestNoChildGetsTheDescriptors(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	pipe, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	s := State{Kept: custody.Left{FDs: map[uint64]int{}}}
	for n := range uint64(200) { // the more there are, the longer they are open to children
		own, err := rights.Duplicate([]int{int(w.Fd())})
		if err != nil {
			t.Fatal(err)
		}
		s.Kept.FDs[n] = own[0]
	}
	defer s.Close()
	x := index{Format: Format, State: s}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := x.execute("/nonexistent/weftd", []string{"weftd"}, nil); !errors.Is(err, unix.ENOENT) {
				t.Error(err)
				return
			}
		}
	})
	for range 100 {
		out, err := exec.Command("ls", "-l", "/proc/self/fd").Output()
		if err != nil || strings.Contains(string(out), pipe) {
			t.Errorf("%v\n%s", err, out)
			break
		}
	}
	close(done)
	wg.Wait()
}

func TestIndexComesBack(t *testing.T) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	s := State{ID: "x", From: "1.2", Binary: "/bin/weftd", Asked: 3, Paused: 4,
		Listeners: map[string]int{"control": p[1]},
		Kept:      custody.Left{FDs: map[uint64]int{7: p[0]}, Shelved: []uint64{7}, Holder: 9}}
	defer s.Close()
	x := index{Format: Format, State: s}
	f, err := x.write()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("{"), 0); err == nil {
		t.Error("the index can be changed")
	}
	back, err := read(f)
	if err != nil {
		t.Fatal(err)
	}
	got, err := back.duplicate()
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	if got.ID != "x" || got.Paused != 4 || len(got.Kept.FDs) != 1 || len(got.Kept.Shelved) != 1 ||
		got.Kept.Holder != 9 || got.Listeners["control"] == p[1] {
		t.Errorf("%+v", got)
	}
	if _, err := os.NewFile(uintptr(got.Listeners["control"]), "w").Write([]byte("y")); err != nil {
		t.Error(err)
	}
	delete(got.Listeners, "control") // its file has it
	if n, err := unix.Read(got.Kept.FDs[7], make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("%d bytes came through the pipe: %v", n, err)
	}
}
