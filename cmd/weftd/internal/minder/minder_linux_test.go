package minder

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A successor that ended while the one before it was still there, which has waited for it, is not waited for without an end.
func TestASuccessorThatHasEndedAlready(t *testing.T) {
	gone := exec.Command("false")
	if gone.Run() == nil {
		t.Fatal("it was to fail")
	}
	serves := exec.Command("sleep", "0.2")
	if err := serves.Start(); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	fd, err := unix.FcntlInt(r.Fd(), unix.F_DUPFD_CLOEXEC, 3) // which the minder takes
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(w, gone.Process.Pid); err != nil {
		t.Fatal(err)
	}
	status := make(chan int, 1)
	go func() {
		n, _ := Wait([]string{strconv.Itoa(serves.Process.Pid), strconv.Itoa(fd)})
		status <- n
	}()
	select {
	case n := <-status:
		if n != 1 {
			t.Errorf("status %d", n)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for a process that is not there")
	}
}
