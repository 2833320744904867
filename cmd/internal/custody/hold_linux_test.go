package custody

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/rights"
	"weft/test/await"
	"weft/test/netns"
)

// A holder outlives weftd's process group, and ends when it is told to, when its time is over, and when
// nothing is left.
func TestWhenTheHolderEnds(t *testing.T) {
	t.Parallel()
	r, _ := pipe(t)
	t.Run("told", func(t *testing.T) {
		n := newNode(t)
		c := n.weftd()
		keepOne(t, c, "a", "", r)
		if g, err := unix.Getpgid(c.Status().PID); err != nil || g == unix.Getpgrp() {
			t.Errorf("its process group is %d: %v", g, err)
		}
		c.Close()
		await.OK(t, "the holder sees that weftd is away", func() error {
			rep, err := n.look()
			if err == nil && rep.Left == 0 {
				err = fmt.Errorf("%+v", rep)
			}
			return err
		})
		if rep, ok, err := End(t.Context(), n.socket()); err != nil || !ok || rep.Descriptors != 1 || rep.Left == 0 {
			t.Errorf("%+v %v %v", rep, ok, err)
		}
		n.ended()
	})
	t.Run("its time is over", func(t *testing.T) {
		n := newNode(t)
		n.timeout = 1500 * time.Millisecond
		c := n.weftd()
		keepOne(t, c, "a", "", r)
		c.Close()
		n.ended()
	})
	t.Run("its socket is gone", func(t *testing.T) { // as with the directory of a container
		n := newNode(t)
		c := n.weftd()
		keepOne(t, c, "a", "", r)
		pid := c.Status().PID
		if err := os.Remove(n.socket()); err != nil {
			t.Fatal(err)
		}
		c.Close()
		await.OK(t, "the holder ends", func() error {
			if err := unix.Kill(pid, 0); err == nil {
				return errors.New("it runs")
			}
			return nil
		})
	})
	t.Run("nothing is left", func(t *testing.T) {
		n := newNode(t)
		c := n.weftd()
		keepOne(t, c, "a", "", r)
		if err := c.DropOne(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		if c.Status().By != "" {
			t.Errorf("%+v", c.Status())
		}
		n.ended()
		keepOne(t, c, "b", "", r) // weftd goes on, and starts another
		if rep, err := n.look(); err != nil || rep.Descriptors != 1 {
			t.Errorf("%+v %v", rep, err)
		}
	})
}

// If the holder dies, weftd starts another one and gives it everything.
func TestAHolderThatDiesIsReplaced(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	r, w := pipe(t)
	keepOne(t, c, "a", "about a", r)
	keepOne(t, c, "b", "about b", w)
	for range 3 {
		pid := c.Status().PID
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await.OK(t, "another holder with everything", func() error {
			rep, err := n.look()
			if err == nil && (rep.PID == pid || rep.Descriptors != 2 || c.Status().PID != rep.PID ||
				c.Status().Fault != "") {
				err = fmt.Errorf("%+v, %+v", rep, c.Status())
			}
			return err
		})
	}
}

// While a holder is stopped nobody waits for it, once it is known. When it goes on it is made equal.
func TestNobodyWaitsForAStoppedHolder(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	r, _ := pipe(t)
	keepOne(t, c, "a", "", r)
	keepOne(t, c, "z", "", r)
	pid := c.Status().PID
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGCONT) }) // it may have ended
	await.Stopped(t, pid)
	for i := range 40 { // with a wait for each this would take longer than a test may
		err := put(c, fmt.Sprint(i), "", r)
		if !errors.Is(err, errSilent) || !strings.Contains(err.Error(), fmt.Sprintf("kill -CONT %d", pid)) {
			t.Fatalf("item %d: %v", i, err)
		}
	}
	for _, name := range []string{"a", "0"} {
		if err := c.DropOne(t.Context(), name); !errors.Is(err, errSilent) {
			t.Error(err)
		}
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await.OK(t, "the holder has what it is to have", func() error {
		rep, err := n.look()
		if s := c.Status(); err == nil && (rep.Descriptors != 40 || s.Items != 40 || s.Fault != "" || s.PID != pid) {
			err = fmt.Errorf("the holder %+v, weftd %+v", rep, s)
		}
		return err
	})
}

// Descriptors go to nobody but the same node and the same user.
func TestOthersGetNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	r, _ := pipe(t)
	keepOne(t, c, "a", "", r)
	info, err := os.Lstat(n.socket())
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	netns.Root(t, "only root can become another user")
	// A mode and directories that let others connect are not all that keeps them out.
	for path := n.socket(); path != os.TempDir(); path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{asNobody + "=" + n.socket()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), errOver.Error()) {
		t.Errorf("%v: %s", err, out)
	}
	for path := filepath.Dir(n.socket()); path != os.TempDir(); path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	n.owner = "node-2"
	other := n.weftd()
	if got := take(other); len(got) != 0 {
		t.Errorf("another node got %v", got)
	}
	n.ended()
}

// A directory in which others could put something in the socket's place is refused, and so is what they have
// put there.
func TestASocketIsNotLookedForWhereOthersWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, _ := pipe(t)
	try := func(dir string) error {
		c := Open(t.Context(), Options{Control: dir + "/weftd.sock", Owner: "x", Timeout: time.Minute,
			Getenv: func(string) string { return "" }, Logger: slog.New(slog.DiscardHandler)})
		defer c.Close()
		err := put(c, "a", "", r)
		if err != nil && c.Status().Fault == "" {
			t.Error("the status has no fault")
		}
		return err
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := try(dir); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Error(err)
	}
	if err := os.Mkdir(dir+"/beneath", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := try(dir + "/beneath"); err == nil {
		t.Error("a directory beneath one that others write is used")
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := try(dir + "/link"); err == nil {
		t.Error("a link to a directory is followed")
	}
	// A link above is as /var/run: nobody else can change that either.
	if err := try(dir + "/link/beneath"); err != nil {
		t.Error(err)
	}
	if _, ok, err := End(t.Context(), dir+"/beneath/weftd.sock.holder"); !ok || err != nil {
		t.Error(ok, err)
	}
	if err := os.Symlink(dir+"/elsewhere", SocketFor(dir+"/weftd.sock")); err != nil {
		t.Fatal(err)
	}
	if err := try(dir); err == nil {
		t.Error("a link in the socket's place is followed")
	}
}

// What is no message, or is not for everybody to ask, changes nothing, and leaves no descriptor.
func TestGarbageIsRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	r, w := pipe(t)
	keepOne(t, c, "a", "about a", r)
	pid := c.Status().PID
	before := openFDs(t, pid)
	for name, b := range map[string][]byte{
		"text": []byte("GET / HTTP/1.1\r\n\r\n"), "huge": bytes.Repeat([]byte("{"), maxMessage+2),
		"another version": []byte(`{"version":99,"verb":"look"}`),
		"no hello":        []byte(`{"version":2,"verb":"store","numbers":[1]}`),
		"no verb":         []byte(`{"version":2}`),
		"another owner":   []byte(`{"version":2,"verb":"hello","owner":"x"}`),
	} {
		u, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: n.socket(), Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(rights.Send(u, b, []int{w, w}), u.SetReadDeadline(time.Now().Add(await.Patience))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if m, fds, err := receive(u); err == nil && m.Refused == "" || len(fds) > 0 ||
			errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %+v %v %v", name, m, fds, err)
		}
		u.Close()
	}
	keepOne(t, c, "b", "", w)
	for _, i := range []Item{{FDs: []int{w}}, {Name: "m", Meta: make([]byte, maxMeta+1), FDs: []int{w}},
		{Name: "n"}} {
		if c.Put(i) == nil {
			t.Errorf("%q with %d descriptors is kept", i.Name, len(i.FDs))
		}
	}
	if rep, err := n.look(); err != nil || rep.Descriptors != 2 || rep.PID != pid {
		t.Errorf("%+v %v", rep, err)
	}
	await.OK(t, "no descriptor of those that came with garbage is left", func() error {
		if open := openFDs(t, pid); open > before+1 {
			return fmt.Errorf("%d are open, and %d before", open, before)
		}
		return nil
	})
}

// Of two weftds that said hello while the holder was stopped, the one that came last is served, whichever is
// read first.
func TestTheLastHelloCounts(t *testing.T) {
	t.Parallel()
	for range 50 {
		socket := filepath.Join(t.TempDir(), "weftd.sock.holder")
		l, err := listen(t.Context(), socket)
		if err != nil {
			t.Fatal(err)
		}
		r, _ := pipe(t)
		own, err := rights.Duplicate([]int{r})
		if err != nil {
			t.Fatal(err)
		}
		var last *session
		for range 3 {
			c, err := dial(t.Context(), socket)
			if err != nil {
				t.Fatal(err)
			}
			if err := send(c, message{Verb: verbHello, Owner: "x"}, nil); err != nil {
				t.Fatal(err)
			}
			if last != nil {
				last.close() // it waited for an answer, and gave up
			}
			last = &session{c}
		}
		over := make(chan error)
		ctx, end := context.WithCancel(t.Context())
		go func() {
			over <- Hold(ctx, HoldOptions{Listener: l, Socket: socket, Owner: "x", Timeout: time.Minute,
				FDs: map[uint64]int{1: own[0]}})
		}()
		if m, _, err := receive(last.c); err != nil || m.Report == nil {
			t.Fatalf("%+v %v", m, err)
		}
		for range 3 { // until the others have been read
			got, err := last.take()
			if err != nil || len(got) != 1 {
				t.Fatalf("%v %v", got, err)
			}
			rights.Close([]int{got[1]})
		}
		last.close()
		end()
		if err := <-over; err != nil {
			t.Error(err)
		}
	}
}

func openFDs(t *testing.T, pid int) int {
	t.Helper()
	d, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// A holder keeps no more than its process can have.
func TestAHolderHasALimit(t *testing.T) {
	h := &holder{room: 2, fds: map[uint64]int{}}
	for n, want := range []bool{true, true, false} {
		if m := h.store(uint64(n), -1); (m.Refused == "") != want {
			t.Errorf("%d: %+v", n, m)
		}
	}
	if m := h.store(1, -1); m.Refused != "" || len(h.fds) != 2 {
		t.Errorf("%+v, %d are kept", m, len(h.fds))
	}
}
