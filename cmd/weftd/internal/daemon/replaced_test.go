package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/internal/podport"
)

// The key stays as it is while another process takes this one's place, which has read it, and afterwards.
func TestNoNewKeyBesideAnotherProcess(t *testing.T) {
	d := &Daemon{}
	var end context.CancelCauseFunc
	d.running, end = context.WithCancelCause(t.Context())
	d.changing.Lock()
	if _, err := d.RotateKey(t.Context()); !errors.Is(err, control.ErrReplaced) {
		t.Errorf("during the hand-over: %v", err)
	}
	d.over = &HandedOver{PID: 7}
	end(d.over)
	d.changing.Unlock()
	if _, err := d.RotateKey(t.Context()); !errors.Is(err, control.ErrReplaced) {
		t.Errorf("after it: %v", err)
	}
}

// TestAttachBesideAnotherProcessClosesDescriptors: all descriptors of a pod are weftd's to close when it refuses the pod.
func TestAttachBesideAnotherProcessClosesDescriptors(t *testing.T) {
	d := &Daemon{over: &HandedOver{PID: 7}}
	fds := make([]int, 3)
	for i := range fds {
		var err error
		if fds[i], err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Attach(podport.Request{}, slices.Clone(fds)); !errors.Is(err, control.ErrReplaced) {
		t.Errorf("the attach: %v", err)
	}
	for i, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
			t.Errorf("descriptor %d is still open: %v", i, err)
		}
	}
}
