package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/test/await"
)

// flow is packets with numbers, one each millisecond, from one host's overlay address to the other's.
type flow struct {
	sent, got atomic.Int64
	twice     atomic.Int64
	gap       atomic.Int64 // nanoseconds: the longest time between two arrivals
	stop      context.CancelFunc
	done      sync.WaitGroup
	rx        net.PacketConn
}

// flows begins one from h to the other.
func (h *host) flows(t *testing.T, to *host, port uint16) *flow {
	t.Helper()
	return h.flowsEvery(t, to, port, time.Millisecond)
}

// flowsEvery is flows with another time between two packets.
func (h *host) flowsEvery(t *testing.T, to *host, port uint16, every time.Duration) *flow {
	t.Helper()
	f := &flow{}
	at := netip.AddrPortFrom(to.inner(t), port)
	var tx net.Conn
	err := to.ns.Do(func() (err error) { f.rx, err = net.ListenPacket("udp", at.String()); return err })
	if err == nil {
		err = h.ns.Do(func() (err error) { tx, err = net.Dial("udp", at.String()); return err })
	}
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := f.rx.(*net.UDPConn).SyscallConn(); err == nil { // a queue's worth may arrive at once
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20) })
	}
	ctx, cancel := context.WithCancel(t.Context())
	f.stop = cancel
	f.done.Go(func() {
		defer tx.Close()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := int64(0); ctx.Err() == nil; n++ {
			if _, err := tx.Write(binary.BigEndian.AppendUint64(nil, uint64(n))); err == nil {
				f.sent.Add(1)
			}
			<-tick.C
		}
	})
	seen := map[uint64]bool{}
	go func() { // ends with rx
		b := make([]byte, 64)
		for last := time.Now(); ; {
			n, _, err := f.rx.ReadFrom(b)
			if err != nil {
				return
			}
			now := time.Now()
			f.gap.Store(max(f.gap.Load(), int64(now.Sub(last))))
			last = now
			if k := binary.BigEndian.Uint64(b[:n]); seen[k] {
				f.twice.Add(1)
			} else {
				seen[k] = true
				f.got.Add(1)
			}
		}
	}()
	return f
}

// over ends it, and says how many packets were lost.
func (f *flow) over(t *testing.T) (lost int64) {
	t.Helper()
	f.stop()
	f.done.Wait()
	for end := time.Now().Add(5 * time.Second); f.got.Load() < f.sent.Load() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // polls for the last ones
	}
	_ = f.rx.Close()
	if n := f.twice.Load(); n > 0 {
		t.Errorf("%d packets came twice", n)
	}
	return f.sent.Load() - f.got.Load()
}

// ended ends what serves h, whichever process that is by now.
func (h *host) ended(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second) // a cleanup is called when the test's own has ended
	defer cancel()
	if s, err := control.NewClient(h.socket()).Status(ctx); err == nil && h.cmd != nil && s.PID != h.cmd.Process.Pid {
		_ = syscall.Kill(s.PID, syscall.SIGKILL)
	}
}

func (h *host) upgrade(t *testing.T) (control.Upgraded, error) {
	t.Helper()
	binary, err := exec.LookPath("weftd")
	if err != nil {
		t.Fatal(err)
	}
	return control.NewClient(h.socket()).Upgrade(t.Context(), control.UpgradeRequest{Binary: binary})
}

// rounds is how many hand-overs follow each other; WEFT_LONG=1 has a hundred.
func rounds() int {
	if os.Getenv("WEFT_LONG") == "1" {
		return 100
	}
	return 3
}

// A weftd is replaced again and again while packets flow both ways, and none is lost. One process waits for them all, and ends with the
// last one's exit status. No descriptor and no process is left over.
func TestHandOverLosesNothing(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.start(t)
	b.start(t)
	a.awaitReady(t)
	first := b.awaitReady(t)
	t.Cleanup(func() { b.ended(t) })
	a.reaches(t, b)
	there, back := a.flows(t, b, 7001), b.flows(t, a, 7002)
	var descriptors []int
	var before string
	pid, longest := first.PID, int64(0)
	for n := range rounds() {
		done, err := b.upgrade(t)
		if err != nil {
			t.Fatal(err)
		}
		if done.FromPID != pid || done.PID == pid || done.Ports != 2 {
			t.Errorf("%+v, and pid %d served before", done, pid)
		}
		t.Logf("hand-over %d: pause %d us, %d ms in all", n, done.Pause, done.Took)
		pid, longest = done.PID, max(longest, done.Pause)
		await.OK(t, "the next one may come", func() error { return b.mayBeReplaced(pid) })
		if s := b.awaitReady(t); s.PID != pid || s.Lease.Subnet != first.Lease.Subnet {
			t.Errorf("pid %d with %v, want %d with %v", s.PID, s.Lease.Subnet, pid, first.Lease.Subnet)
		}
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			t.Fatal(err)
		}
		descriptors = append(descriptors, len(open))
		if n == 0 {
			before = b.traces(t)
		}
	}
	await.OK(t, "no hand-over leaves anything", func() error {
		if after := b.traces(t); after != before {
			return fmt.Errorf("%s; after the first it was %s", after, before)
		}
		return nil
	})
	if spread := slices.Max(descriptors) - slices.Min(descriptors); spread > 8 {
		t.Errorf("open descriptors after each: %v", descriptors) // some come and go with what is asked of the kernel just then
	}
	for name, f := range map[string]*flow{"to it": there, "from it": back} {
		// The TUN's queue is full after half a second in which nobody reads: a machine that is so busy proves nothing.
		if lost := f.over(t); lost != 0 && longest < 250_000 {
			t.Errorf("%s: %d of %d lost, though no pause was longer than %d us", name, lost, f.sent.Load(), longest)
		}
	}
	t.Logf("open descriptors after each: %v", descriptors)
	if code := b.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("the process that was started ended with %d", code)
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("the last weftd (pid %d) lives", pid)
	}
}

// traces are what hand-overs could leave: links, lines of rules, and what is open in the processes that outlive a weftd.
func (h *host) traces(t *testing.T) string {
	t.Helper()
	links, err := h.ns.Netlink().LinkList()
	var rules []byte
	err = errors.Join(err, h.ns.Do(func() (err error) { rules, err = exec.Command("nft", "list", "ruleset").Output(); return err }))
	if err != nil {
		t.Fatal(err)
	}
	var s control.Status
	await.OK(t, "somebody keeps its ports", func() (err error) { // which the successor sees to once the one before has said good-bye
		if s, err = h.status(t); err == nil && s.Custody == nil {
			err = errors.New("nobody does")
		}
		return err
	})
	open := func(pid int) int {
		l, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(slices.DeleteFunc(l, func(e os.DirEntry) bool { // Go's poller has two of its own from the first timer on
			to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name()))
			return to == "anon_inode:[eventpoll]" || to == "anon_inode:[eventfd]"
		}))
	}
	return fmt.Sprintf("%d links, %d lines of rules, %d descriptors of the holder, %d of the minder, %d of ports", len(links), strings.Count(string(rules), "\n"),
		open(s.Custody.PID), open(h.cmd.Process.Pid), s.Custody.PortDescriptors)
}

// mayBeReplaced reports whether the weftd before has ended, until which the present one takes no successor, and what waits for both hears signals: one
// that comes earlier would end it. What shows that is its wait for children, which comes after.
func (h *host) mayBeReplaced(pid int) error {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return err
	}
	minds := h.cmd.Process.Pid
	parent := fmt.Sprintf("PPid:\t%d\n", minds)
	exe, err := os.ReadFile("/proc/" + strconv.Itoa(minds) + "/cmdline")
	if err != nil || !strings.Contains(string(b), parent) || !strings.Contains(string(exe), "minder") {
		return errors.Join(err, errors.New("the process that was started does not wait for it yet"))
	}
	calls, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", minds))
	waits := func(file string) bool {
		call, err := os.ReadFile(file)
		return err == nil && strings.HasPrefix(string(call), strconv.Itoa(unix.SYS_WAIT4)+" ")
	}
	if err != nil || !slices.ContainsFunc(calls, waits) {
		return errors.Join(err, errors.New("the process that was started has not begun to wait"))
	}
	return nil
}

// contained begins a weftd as the first process of a PID namespace.
func (h *host) contained(t *testing.T, log *buffer) *exec.Cmd {
	t.Helper()
	c := h.command()
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if err := h.ns.Start(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// A weftd in a container that one in another container replaces stays until it is stopped: it would be started again, and take its place
// back. It has nothing any more, so that the other one is replaced in its turn, in whose container the first process stays too.
func TestTheFirstProcessOfAContainerStays(t *testing.T) {
	t.Parallel()
	a, h := pair(t)
	a.start(t) // it has the store
	a.awaitReady(t)
	begin := func(log *buffer) *exec.Cmd { return h.contained(t, log) }
	says := func(log *buffer, what string) {
		t.Helper()
		await.OK(t, what, func() error {
			if !strings.Contains(log.String(), what) {
				return errors.New(log.String())
			}
			return nil
		})
	}
	var logs [2]buffer
	first := begin(&logs[0])
	h.awaitReady(t)
	second := begin(&logs[1])
	says(&logs[0], "waiting to be stopped")
	if s := h.awaitReady(t); s.PID != 1 {
		t.Errorf("pid %d serves", s.PID)
	}
	await.OK(t, "an upgrade", func() error { _, err := h.upgrade(t); return err })
	await.OK(t, "its successor answers", func() error {
		if s := h.awaitReady(t); s.PID == 1 {
			return errors.New("the one that was upgraded does")
		}
		return nil
	})
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Errorf("the one that was replaced: %v", err)
	}
	_ = second.Process.Kill() // and with it all that is in its container
	_ = second.Wait()
}

// A weftd believes nothing that listens at its control socket's path as another user, and asks it for nothing.
func TestAStrangerIsNoPredecessor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weftd.sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	listened := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its user
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 1234, ^uintptr(0))
		if errno != 0 {
			listened <- errno
			return
		}
		listened <- unix.Listen(fd, 1) // which is when the kernel notes whose it is
	}()
	if err := <-listened; err != nil {
		t.Fatal(err)
	}
	if _, err := control.AskHandOver(t.Context(), path, control.HandOverRequest{Protocol: 1, State: "x"}); !errors.Is(err, control.ErrRefused) || !strings.Contains(err.Error(), "user 1234") {
		t.Errorf("%v", err)
	}
	c, _, err := unix.Accept(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(c)
	if n, err := unix.Read(c, make([]byte, 64)); n != 0 || err != nil {
		t.Errorf("it was told %d bytes: %v", n, err)
	}
}
