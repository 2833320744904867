package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/internal/rights"
	"weft/cmd/weftd/internal/handover"
)

// ends are both ends of a connection of packets.
func ends(t *testing.T) (ours *handover.Conn, theirs *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var c [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		n, err := net.FileConn(f)
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		c[i] = n.(*net.UnixConn)
		t.Cleanup(func() { _ = n.Close() })
	}
	return handover.NewConn(c[0]), c[1]
}

// Only one that is gone is taken for one that is gone: what cannot be understood is no reason to read beside it.
func TestWhatIsNotUnderstoodIsNotGone(t *testing.T) {
	for _, c := range []struct {
		name  string
		then  func(*net.UnixConn)
		gone  bool
		fault string
	}{
		{"it ends", func(u *net.UnixConn) { _ = u.Close() }, true, ""},
		{"it says what is no word", func(u *net.UnixConn) { _, _ = u.Write([]byte("?")) }, false, "invalid character"},
		{"it goes on", func(u *net.UnixConn) { _, _ = u.Write([]byte(`{"word":"back","name":"of a reason"}`)) }, false, "of a reason"},
	} {
		conn, theirs := ends(t)
		d := &Daemon{alone: newLatch(), before: &predecessor{conn: conn, words: make(chan handover.Message, 1)}}
		c.then(theirs)
		err := d.hear(t.Context())
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) || d.alone.isSet() != c.gone {
			t.Errorf("%s: %v, alone %v", c.name, err, d.alone.isSet())
		}
	}
}

// A process that is to end does not take that for its predecessor's end, and leaves the connection open, which says that it reads.
func TestAnEndOfOursIsNotTheirs(t *testing.T) {
	conn, theirs := ends(t)
	d := &Daemon{alone: newLatch(), before: &predecessor{conn: conn, words: make(chan handover.Message, 1)}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.hear(ctx); err != nil || d.alone.isSet() {
		t.Errorf("%v, alone %v", err, d.alone.isSet())
	}
	if err := theirs.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the other one hears %v", err)
	}
}

func TestWhoMayTakeThePlace(t *testing.T) {
	d := &Daemon{state: "x"}
	for _, c := range []struct {
		name, want string
		r          control.HandOverRequest
	}{
		{"an earlier protocol", "by protocol 1", control.HandOverRequest{Protocol: 1, State: "x", Netns: ownNetns()}},
		{"another node", "state directory", control.HandOverRequest{Protocol: handover.Version, State: "y", Netns: ownNetns()}},
		{"another network namespace", "network namespace", control.HandOverRequest{Protocol: handover.Version, State: "x", Netns: ownNetns() + 1}},
		{"the same", "--hand-over=", control.HandOverRequest{Protocol: handover.Version, State: "x", Netns: ownNetns()}}, // which this one was started with
	} {
		if err := d.MayHandOver(c.r); !errors.Is(err, control.ErrRefused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A service manager that cannot be told who serves would start this process again, and it would take its place back.
func TestWhoStays(t *testing.T) {
	d := &Daemon{}
	t.Setenv("NOTIFY_SOCKET", "/run/systemd/notify")
	for _, c := range []struct {
		child, want bool
		pid         int
	}{{false, true, 0}, {false, false, 7}, {true, false, 7}} {
		if got := d.stays(c.child, c.pid); got != c.want {
			t.Errorf("child %v, pid %d: %v", c.child, c.pid, got)
		}
	}
}

// The end of a process is waited for, and not only its signal sent; who it is the kernel says of the connection.
func TestAnEndIsSeen(t *testing.T) {
	_, theirs := ends(t)
	self := rights.PeerProcess(theirs, os.Getpid())
	if self < 0 || hasEnded(self, 0) {
		t.Errorf("this process has descriptor %d, and has ended", self)
	}
	_ = unix.Close(self)
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	w := giving{other: control.Caller{PID: cmd.Process.Pid, FD: fd}}
	if hasEnded(fd, 0) || !w.end() || !hasEnded(fd, 0) {
		t.Error("it is not seen to end")
	}
	_ = cmd.Wait()
	if (&giving{other: control.Caller{FD: -1}}).end() {
		t.Error("one that cannot be seen has ended")
	}
}

// What was given of a generation that ends meanwhile is not what is wanted.
func TestAGenerationThatEndsIsNotHandedOver(t *testing.T) {
	g := &generation{}
	d := &Daemon{gen: g}
	w := &giving{d: d, g: g}
	if !w.serves() {
		t.Error("it serves")
	}
	if g.over.Store(true); w.serves() {
		t.Error("it ends")
	}
	if d.gen = nil; w.serves() {
		t.Error("there is none")
	}
}
