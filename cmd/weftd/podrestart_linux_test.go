package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"weft/cmd/internal/custody"
	"weft/cmd/internal/podport"
	"weft/cmd/internal/podtun"
	"weft/test/await"
	"weft/test/netns"
)

// attached makes a pod with that address, and attaches it to h's weftd.
func (h *host) attached(t *testing.T, id string, addr netip.Addr, n podport.Node) *netns.Namespace {
	t.Helper()
	ns := netns.New(t, id)
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD())
	var tun *os.File
	if err := h.ns.Do(func() (err error) {
		tun, err = podtun.Make(podtun.Spec{Netns: path, Name: "eth0", Addresses: []netip.Addr{addr}, MTU: n.MTU,
			Routes: n.Networks})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer tun.Close()
	r := podport.Request{Key: podport.Key{ID: id, Interface: "eth0"}, By: podport.ByWeft,
		Addresses: []netip.Addr{addr}, MTU: n.MTU}
	if _, err := h.pods().Attach(t.Context(), r, []int{int(tun.Fd())}); err != nil {
		t.Fatal(err)
	}
	return ns
}

func (h *host) pods() podport.Client {
	return podport.Client{Socket: h.socket(), Timeout: 20 * time.Second}
}

// kept says how many pods weftd has attached, and that as many are in custody with a holder.
func (h *host) kept(t *testing.T, want int) (pid int, err error) {
	p, err := h.pods().Pods(t.Context())
	if err != nil {
		return 0, err
	}
	for _, x := range p.Pods {
		if x.State != podport.Attached {
			return 0, fmt.Errorf("%s is %s: %s", x.Key, x.State, x.Problem)
		}
	}
	s, err := h.status(t)
	if err != nil {
		return 0, err
	}
	if s.Custody == nil && want == 0 && len(p.Pods) == 0 {
		return 0, nil
	}
	if len(p.Pods) != want || s.Custody == nil || s.Custody.By != custody.ByHolder || s.Custody.Items != want ||
		s.Custody.Fault != "" {
		return 0, fmt.Errorf("%d pods, custody %+v, want %d", len(p.Pods), s.Custody, want)
	}
	return s.Custody.PID, nil
}

// Pods keep their interface, their address and a connection between them while weftd is killed and started,
// and stopped and started, and they have their ports again before it is ready.
func TestPodsOutliveTheDaemon(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	t.Cleanup(func() {
		if _, _, err := custody.End(context.WithoutCancel(t.Context()), custody.SocketFor(a.socket())); err != nil {
			t.Error(err)
		}
	})
	a.start(t)
	s := a.awaitReady(t)
	p, err := a.pods().Pods(t.Context())
	if err != nil || !p.Node.Attaches {
		t.Fatalf("%v %+v", err, p)
	}
	first := s.Lease.Subnet.Masked().Addr().Next().Next()
	one, two := a.attached(t, "one", first, p.Node), a.attached(t, "two", first.Next(), p.Node)
	pid, err := a.kept(t, 2)
	if err != nil {
		t.Fatal(err)
	}

	var l net.Listener
	if err := two.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(first.Next().String(), "7"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // ends with the connection, or the listener
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	c, err := one.Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	say := func(line string) error {
		err := c.SetDeadline(time.Now().Add(60 * time.Second))
		if err == nil {
			_, err = io.WriteString(c, line+"\n")
		}
		if err != nil {
			return err
		}
		got, err := r.ReadString('\n')
		if err == nil && got != line+"\n" {
			err = fmt.Errorf("%q came back", got)
		}
		return err
	}
	if err := say("before"); err != nil {
		t.Fatal(err)
	}
	for k := range 4 {
		a.stop(t, []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[k%2])
		said := make(chan error, 1)
		go func() { said <- say(fmt.Sprint("restart ", k)) }()
		a.start(t)
		a.awaitReady(t)
		if again, err := a.kept(t, 2); err != nil || again != pid {
			t.Errorf("restart %d: holder %d, before %d: %v", k, again, pid, err)
		}
		if err := <-said; err != nil {
			t.Fatalf("restart %d: %v", k, err)
		}
	}

	c.Close()
	l.Close()
	one.Close()
	await.OK(t, "a pod whose namespace ended is let go", func() error { _, err := a.kept(t, 1); return err })
	if _, err := a.pods().Detach(t.Context(), podport.Key{ID: "two", Interface: "eth0"}); err != nil {
		t.Error(err)
	}
	await.OK(t, "the holder has weftd's own ports and nothing else", func() error {
		_, err := a.kept(t, 0)
		if s, serr := a.status(t); err == nil && (serr != nil || s.Custody == nil || s.Custody.Ports != 2 ||
			s.Custody.PID != pid) {
			err = fmt.Errorf("%+v %w", s.Custody, serr)
		}
		return err
	})
	a.stop(t, syscall.SIGTERM)
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the holder ended with weftd, which was stopped, and not for good: %v", err)
	}
	if r, ok, err := custody.End(t.Context(), custody.SocketFor(a.socket())); err != nil || !ok || r.Descriptors < 2 {
		// as weft cleanup does
		t.Errorf("%+v %v %v", r, ok, err)
	}
	await.OK(t, "the holder ends when it is told to", func() error {
		if err := syscall.Kill(pid, 0); err == nil {
			return errors.New("it lives")
		}
		return nil
	})
}
