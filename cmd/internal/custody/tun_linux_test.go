package custody

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/cmd/internal/rights"
	"weft/test/await"
	"weft/test/netns"
)

// asSwitch is a variable that makes the test binary a weftd that does nothing but carry packets between the
// two TUNs that it has in custody. It has the path of the control socket. A first one is handed the TUNs as
// descriptors 3 and 4.
const asSwitch = "WEFT_TEST_BE_SWITCH"

func runSwitch(control string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	CloseOnExec(os.Getenv)
	for fd := range handedOver(os.Getenv) {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			return fmt.Errorf("descriptor %d would go to every process that is started: %w", fd, err)
		}
	}
	c := Open(ctx, Options{Control: control, Owner: "node-1", Timeout: time.Minute, Getenv: os.Getenv, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	defer c.Close()
	var tuns []int
	items, away := c.Take("")
	for _, i := range items {
		tuns = append(tuns, i.FDs...)
	}
	if len(tuns) == 0 {
		tuns = []int{3, 4}
		for k, fd := range tuns {
			if err := put(c, fmt.Sprint("pod ", k), "", fd); err != nil {
				return err
			}
		}
	}
	if len(tuns) != 2 {
		return fmt.Errorf("%d TUNs were kept", len(tuns))
	}
	fmt.Println("ready", away, c.Status().By)
	for k, fd := range tuns {
		go carry(fd, tuns[1-k])
	}
	<-ctx.Done()
	return nil
}

// carry ends with the process.
func carry(from, to int) {
	b := make([]byte, 65536)
	for {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(from), Events: unix.POLLIN}}, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if n, err := unix.Read(from, b); err == nil {
			_, _ = unix.Write(to, b[:n]) // a full queue drops, as a switch does
		}
	}
}

// pod is a namespace with a TUN in it.
type pod struct {
	ns   *netns.Namespace
	tun  int
	addr string
}

// newPod makes a TUN outside, and moves its device into a new namespace.
func newPod(t *testing.T, n int) *pod {
	t.Helper()
	netns.TUN(t)
	ns := netns.New(t, fmt.Sprint("pod", n))
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{ns: ns, tun: fd, addr: fmt.Sprintf("198.18.77.%d", n)}
	t.Cleanup(func() { _ = unix.Close(p.tun) }) // a test may have put another one in its place
	r, err := unix.NewIfreq("")
	if err != nil {
		t.Fatal(err)
	}
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByName(r.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetNsFd(link, ns.FD()); err != nil {
		t.Fatal(err)
	}
	if link, err = ns.Netlink().LinkByName(r.Name()); err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr(p.addr + "/24")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ns.Netlink().AddrAdd(link, addr), ns.Netlink().LinkSetUp(link)); err != nil {
		t.Fatal(err)
	}
	return p
}

// switches are processes one after the other.
type switches struct {
	t       *testing.T
	control string
	env     func() []string           // of the first one, which is handed nothing
	start   func(cmd *exec.Cmd) error // starts it with what a service manager hands over; nil is a plain start
	cmd     *exec.Cmd
}

// next starts a switch, and returns what it says once packets flow.
func (s *switches) next(first ...*os.File) string {
	s.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asSwitch+"="+s.control)
	if s.env != nil && len(first) > 0 {
		cmd.Env = append(cmd.Env, s.env()...)
	}
	cmd.ExtraFiles = first
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	start := s.start
	if start == nil || len(first) > 0 {
		start = (*exec.Cmd).Start
	}
	if err := start(cmd); err != nil {
		s.t.Fatal(err)
	}
	s.cmd = cmd
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "ready") {
		s.t.Fatalf("%v: %s", err, line)
	}
	return line
}

func (s *switches) stop(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Wait() // a killed one has no good status
}

// echoes opens a TCP connection from a to b, and returns one who sends a line, and waits for it to come back.
func echoes(t *testing.T, a, b *pod) (say func(string) error) {
	t.Helper()
	var l net.Listener
	if err := b.ns.Do(func() (err error) { l, err = net.Listen("tcp", b.addr+":7"); return err }); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = io.Copy(c, c) // ends with the connection
			_ = c.Close()
		}
	})
	var c net.Conn
	if err := a.ns.Do(func() (err error) { c, err = net.DialTimeout("tcp", b.addr+":7", 20*time.Second); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); l.Close(); wg.Wait() })
	r := bufio.NewReader(c)
	return func(line string) error {
		if err := c.SetDeadline(time.Now().Add(60 * time.Second)); err != nil {
			return err
		}
		if _, err := io.WriteString(c, line+"\n"); err != nil {
			return err
		}
		got, err := r.ReadString('\n')
		if err == nil && got != line+"\n" {
			err = fmt.Errorf("%q came back", got)
		}
		return err
	}
}

// A connection between two pods lives on while weftd is killed and started, and stopped and started, ten
// times in a row, and what was sent while there was none arrives.
func TestAConnectionOutlivesRestarts(t *testing.T) {
	onEach(t, func(t *testing.T, n *node, by string) {
		t.Parallel()
		a, b := newPod(t, 1), newPod(t, 2)
		s := &switches{t: t, control: n.control}
		if n.store != nil {
			s.start = func(cmd *exec.Cmd) error {
				release, err := n.store.Hand(cmd)
				if err != nil {
					return err
				}
				defer release()
				return cmd.Start()
			}
			s.env = func() []string { return []string{"NOTIFY_SOCKET=" + n.store.Path, "FDSTORE=20"} }
		}
		tuns := []*os.File{os.NewFile(uintptr(dup(t, a.tun)), "a"), os.NewFile(uintptr(dup(t, b.tun)), "b")}
		s.next(tuns...)
		for _, f := range tuns {
			f.Close()
		}
		rights.Close([]int{a.tun, b.tun}) // nobody has them now but the switch and the shelf
		a.tun, b.tun = dup(t, 0), dup(t, 0)
		t.Cleanup(func() { s.stop(syscall.SIGKILL) })
		say := echoes(t, a, b)
		if err := say("before"); err != nil {
			t.Fatal(err)
		}
		for k := range 10 {
			s.stop([]syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[k%2])
			for _, p := range []*pod{a, b} {
				for _, l := range links(t, p) {
					if l.Attrs().RawFlags&unix.IFF_LOWER_UP == 0 {
						t.Errorf("restart %d: a pod's interface has no carrier", k)
					}
				}
			}
			said := make(chan error, 1)
			go func() { said <- say(fmt.Sprint("restart ", k)) }()
			if line := s.next(); !strings.Contains(line, by) {
				t.Errorf("kept by %s", line)
			}
			if err := <-said; err != nil {
				t.Fatalf("restart %d: %v", k, err)
			}
		}
		if n.shelved() != 2 {
			t.Errorf("%d are shelved", n.shelved())
		}
	})
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	own, err := rights.Duplicate([]int{fd})
	if err != nil {
		t.Fatal(err)
	}
	return own[0]
}

func links(t *testing.T, p *pod) (tuns []netlink.Link) {
	t.Helper()
	all, err := p.ns.Netlink().LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		if l.Type() == "tuntap" || l.Type() == "tun" {
			tuns = append(tuns, l)
		}
	}
	if len(tuns) != 1 {
		t.Errorf("%d TUNs in the pod", len(tuns))
	}
	return tuns
}

// A pod that ends takes its device with it, though its TUN is kept: the holder drops that within moments, and
// ends with the last.
func TestAPodThatEndsIsDropped(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	a, b := newPod(t, 3), newPod(t, 4)
	keepOne(t, c, "a", "", a.tun)
	keepOne(t, c, "b", "", b.tun)
	r, _ := pipe(t)
	keepOne(t, c, "no TUN", "", r)
	c.Close()
	a.ns.Close()
	await.OK(t, "the device is gone, and so is the descriptor", func() error {
		rep, err := n.look()
		if err == nil && rep.Items != 2 {
			err = fmt.Errorf("%+v", rep)
		}
		return err
	})
	if !gone(a.tun) || gone(b.tun) || gone(r) {
		t.Errorf("%v %v %v", gone(a.tun), gone(b.tun), gone(r))
	}
	c = n.weftd()
	b.ns.Close()
	await.OK(t, "the other device is gone too", func() error {
		if !gone(b.tun) {
			return errors.New("it is there")
		}
		return nil
	})
	c.Close()
	c = n.weftd() // the next one is not given what is gone
	if items, _ := c.Take(""); len(items) != 1 || items[0].Name != "no TUN" {
		t.Errorf("%+v", items)
	}
}

// What has waited in a TUN's queue for long is discarded, what has waited for a moment is not.
func TestStalePacketsAreDiscarded(t *testing.T) {
	t.Parallel()
	p := newPod(t, 5)
	var u net.Conn
	if err := p.ns.Do(func() (err error) { u, err = net.Dial("udp", "198.18.77.99:9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	drain(p.tun) // of IPv6's own
	fill := func() {
		for range 10 {
			if _, err := u.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for away, want := range map[time.Duration]bool{StaleAfter: false, StaleAfter + 1: true} {
		fill()
		c := &Custody{items: map[string]entry{}}
		c.adopt(entry{Name: "a", Numbers: []uint64{1}, fds: []int{p.tun}}, map[uint64]int{}, true, away)
		if c.discarded >= 10 != want {
			t.Errorf("%d are discarded after %v", c.discarded, away)
		}
		if left := drain(p.tun); left >= 10 == want {
			t.Errorf("%d are left after %v", left, away)
		}
	}
	r, w := pipe(t)
	if _, err := unix.Write(w, []byte("x")); err != nil || drain(r) != 0 {
		t.Error("something else than a TUN is emptied")
	}
}
