package wireguard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/await"
)

// TestConfigCrossesTheWire: what a process is told is what was meant, with its secrets, and no error shows one.
func TestConfigCrossesTheWire(t *testing.T) {
	c := Config{Private: NewPrivateKey(), Port: 51820, Local4: netip.MustParseAddr("192.0.2.1"), MTU: 1420, Peers: []Peer{
		{Key: PublicKey{1}, Preshared: NewPrivateKey(), Endpoint: netip.MustParseAddrPort("192.0.2.2:51820"), Keepalive: 25, AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.42.1.0/24")}},
		{Key: PublicKey{2}, Endpoint: netip.MustParseAddrPort("[2001:db8::2]:51821")},
	}}
	a, b := streamPair(t)
	go func() { _ = writeMessage(a, request{Verb: verbConfigure, Config: wireOf(c)}, nil) }() // what fails there fails here
	var r request
	if _, err := readMessage(b, &r); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Config.config(); err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("%+v, %v; want %+v", got, err, c)
	}
	w := wireOf(c)
	w.Private = "secret word"
	if _, err := w.config(); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a key that is none: %v", err)
	}
	if err := parseJSON([]byte(`{"config":{"private":{"secret":1}}}`), &r); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a malformed message: %v", err)
	}
}

// streamPair are two ends of a stream.
func streamPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, err = unixConn(pair[0])
	b, err2 := unixConn(pair[1])
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// TestMessagesAreBounded: what no weftd sends is refused before memory is made for it, and its descriptors are the reader's.
func TestMessagesAreBounded(t *testing.T) {
	for name, b := range map[string][]byte{"too long": {0xff, 0xff, 0xff, 0xff}, "no JSON": {0, 0, 0, 2, 'x', 'y'}} {
		t.Run(name, func(t *testing.T) {
			a, other := streamPair(t)
			f, err := os.Open("/dev/null")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, _, err := a.WriteMsgUnix(b, unix.UnixRights(int(f.Fd())), nil); err != nil {
				t.Fatal(err)
			}
			fds, err := readMessage(other, &request{})
			if !errors.Is(err, errMalformed) || len(fds) != 1 {
				t.Errorf("%v, %v", fds, err)
			}
			closeAll(fds)
		})
	}
}

// The protocols of strangers that close what they are given: lets goes on, as if it was short of descriptors, and leaves ends.
const (
	lets   = -1
	leaves = -2
)

// stranger plays a process that answers as a says, or, without one, not at all. It returns the line to it.
func stranger(t *testing.T, a *answer) (line int, told chan byte) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	l, err := unixConn(pair[1])
	if err != nil {
		t.Fatal(err)
	}
	told = make(chan byte, 4)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b, oob := make([]byte, 1), make([]byte, 64)
		for {
			_, n, _, _, err := l.ReadMsgUnix(b, oob)
			if err != nil {
				close(told)
				return
			}
			told <- b[0]
			if fds, err := descriptors(oob[:n]); err == nil && len(fds) == 1 && a != nil {
				if a.Protocol == lets || a.Protocol == leaves {
					if a.Protocol == leaves {
						_ = l.Close() // the kernel does so after all others, by how much is the machine's
					}
					closeAll(fds)
					continue
				}
				if c, err := unixConn(fds[0]); err == nil {
					defer c.Close()
					_ = writeMessage(c, *a, nil)
				}
			}
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return pair[0], told
}

// TestAStrangeProcessIsReplaced: one of another protocol is told to end, and another one is started, unless another weftd has it too. One that has
// ended is replaced and counted.
func TestAStrangeProcessIsReplaced(t *testing.T) {
	errStarted := errors.New("started")
	inside := func(f func() error) error { return errStarted } // before anything is opened
	for _, c := range []struct {
		name    string
		answer  *answer // nil for none
		dead    bool
		settled bool
		want    error
		ended   uint64
	}{
		{"of another protocol", &answer{Protocol: processProtocol + 1, Version: "v9"}, false, true, errStarted, 0},
		{"of another protocol, while weftd is replaced", &answer{Protocol: processProtocol + 1}, false, false, errForeign, 0},
		{"one that has ended", &answer{}, true, true, errStarted, 1},
		{"one that lets go of the connection", &answer{Protocol: lets}, false, true, errCut, 0},
		{"one that ends just now", &answer{Protocol: leaves}, false, true, errStarted, 1},
		{"one that does not answer", nil, false, true, errStarted, 1},
		{"one that does not answer, while weftd is replaced", nil, false, false, errMute, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			line, told := stranger(t, c.answer)
			process := exec.Command("sleep", "3600") // as if it hung
			pidfd := -1
			process.SysProcAttr = &unix.SysProcAttr{PidFD: &pidfd, Pdeathsig: unix.SIGKILL}
			if err := process.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- process.Wait() }()
			t.Cleanup(func() {
				if err := process.Process.Kill(); err == nil {
					<-ended
				}
			})
			if c.dead {
				other, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				closeAll([]int{line, other[1]})
				line = other[0]
			}
			forgotten := false
			p := NewProcesses(ProcessOptions{
				Kept: map[string]Line{"wg": {line, pidfd}}, Keep: func(string, Line) {}, Forget: func(string) { forgotten = true },
				Settled: func() bool { return c.settled }, Logger: slog.New(slog.DiscardHandler),
			})
			defer p.Close()
			if _, err := p.Open("wg", inside, inside, nil); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if n := p.Ended(); n != c.ended || forgotten != (c.want == errStarted) {
				t.Errorf("%d have ended, want %d; forgotten: %t", n, c.ended, forgotten)
			}
			if gone := c.dead || c.answer != nil && c.answer.Protocol == leaves; !gone && c.settled && (<-told != lineConnect || c.want == errStarted && <-told != lineEnd) {
				t.Error("it was not told to end")
			}
			if c.want != errStarted {
				return
			}
			select { // though it has not done as it was told
			case err := <-ended:
				ended <- err
				if e := (*exec.ExitError)(nil); !errors.As(err, &e) || e.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
					t.Errorf("its end: %v", err)
				}
			case <-time.After(await.Patience):
				t.Error("it still runs")
			}
		})
	}
}

// TestAProcessThatIsGoneIsSeen: whoever has it is told, and what he asks is answered with an error.
func TestAProcessThatIsGoneIsSeen(t *testing.T) {
	line, told := stranger(t, &answer{Protocol: processProtocol, PID: 7, Version: "v1", Lacks: "files"})
	defer closeAll([]int{line})
	lost := make(chan struct{})
	r, err := connect("wg", line, nil, func() { close(lost) })
	if err != nil {
		t.Fatal(err)
	}
	if pid, version, lacks := r.Process(); pid != 7 || lacks != "files" || version != "v1" || r.Lost() {
		t.Errorf("%d %q, lost: %t", pid, version, r.Lost())
	}
	<-told
	if err := sendLine(line, lineEnd, -1); err != nil {
		t.Fatal(err)
	}
	<-told
	closed := r.conn.CloseRead() // as if the other end was gone
	await.True(t, "that it is gone is seen", r.Lost)
	<-lost
	if _, err := r.Peers(); closed != nil || !errors.Is(err, errCut) {
		t.Errorf("%v, %v", closed, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.Peers(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestServeNeedsATUN: what is none is an error at once.
func TestServeNeedsATUN(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(pair[:1])
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := Serve(ctx, Served{Device: "wg", Version: "v1"}, pair[1], fd); err == nil || ctx.Err() != nil {
		t.Errorf("a device that is none: %v", err)
	}
}

// TestSocketsThatWereGiven: a socket is had as often as it is opened, and goes when it is not wanted any more.
func TestSocketsThatWereGiven(t *testing.T) {
	s := &sockets{by: map[netip.AddrPort]*os.File{}}
	c, err := opensIn(func(f func() error) error { return f() })(netip.MustParseAddrPort("127.0.0.1:0"), 0)
	if err != nil {
		t.Fatal(err)
	}
	at := c.LocalAddr().(*net.UDPAddr).AddrPort()
	f, err := c.File()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(f.Fd()))
	if err := errors.Join(err, f.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	s.add(at, fd)
	for range 2 {
		u, err := s.open(at, 0)
		if err != nil || u.LocalAddr().String() != at.String() {
			t.Fatalf("%v, %v", u, err)
		}
		_ = u.Close()
	}
	if got := fmt.Sprint(s.addresses()); got != fmt.Sprintf("[%v]", at) {
		t.Errorf("%s", got)
	}
	s.keep(nil)
	if _, err := s.open(at, 0); err == nil {
		t.Error("one that is gone was opened")
	}
	again, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatalf("the port is not free: %v", err)
	}
	_ = again.Close()
}

// TestACrashLoopHasPauses: of a process that ends soon after its start, time and again, not one after the other is started.
func TestACrashLoopHasPauses(t *testing.T) {
	p := NewProcesses(ProcessOptions{Logger: slog.New(slog.DiscardHandler)})
	p.began["wg"], p.soon["wg"] = time.Now(), 1
	if err := p.pause("wg"); err != nil {
		t.Errorf("the second one: %v", err)
	}
	for _, n := range []int{2, 3, 1000} {
		p.soon["wg"] = n
		if err := p.pause("wg"); err == nil {
			t.Errorf("one after %d", n)
		}
	}
	p.began["wg"] = time.Now().Add(-soonTime - soonLast - time.Second)
	if err := p.pause("wg"); err != nil || p.soon["wg"] != 0 {
		t.Errorf("long after: %v, %d", err, p.soon["wg"])
	}
}
