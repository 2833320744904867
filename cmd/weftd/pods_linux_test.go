package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weft/cmd/internal/hostlocal"
	"weft/cmd/internal/podport"
	"weft/cmd/internal/podtun"
	"weft/cmd/internal/socket"
	"weft/cmd/internal/statefiles"
	"weft/test/await"
	"weft/test/netns"
)

// attach attaches a namespace to the host's weftd, as weft attach does.
func (h *host) attach(t *testing.T, ns *netns.Namespace, id string) (podport.Pod, error) {
	t.Helper()
	c := podport.Client{Socket: h.socket()}
	now, err := c.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	store := hostlocal.Store{Dir: h.dir, Network: "cbr0"}
	got, err := store.Allocate(t.Context(), hostlocal.Holder{Container: id, Interface: "eth0"}, now.Node.Subnets)
	if err != nil {
		t.Fatal(err)
	}
	task := podtun.Task{What: podtun.TaskMake, Networks: now.Node.Networks,
		Spec: podtun.Spec{Netns: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD()), Name: "eth0",
			MTU: now.Node.MTU}}
	for _, a := range got.Addresses {
		task.Spec.Addresses = append(task.Spec.Addresses, a.Addr())
	}
	var tun *os.File
	if err := h.ns.Do(func() (err error) { tun, err = podtun.Do(t.Context(), task, nil); return err }); err != nil {
		t.Fatal(err)
	}
	defer tun.Close()
	settings, err := podtun.OpenSettings(task.Spec.Netns, "eth0", podport.Settings())
	if err != nil {
		t.Fatal(err)
	}
	fds := []int{int(tun.Fd())}
	for _, f := range settings {
		defer f.Close()
		fds = append(fds, int(f.Fd()))
	}
	return c.Attach(t.Context(), podport.Request{
		Key: podport.Key{ID: id, Interface: "eth0"}, Name: id, By: podport.ByWeft, Addresses: task.Spec.Addresses,
		MTU:         now.Node.MTU,
		Reservation: &podport.Reservation{Dir: store.Dir, Network: store.Network},
	}, fds)
}

// hears reports whether a datagram from one namespace arrives in another at an address of it.
func hears(t *testing.T, from, to *netns.Namespace, at netip.Addr) error {
	t.Helper()
	var in *net.UDPConn
	if err := to.Do(func() (err error) {
		in, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 9000)))
		return err
	}); err != nil {
		return err
	}
	defer in.Close() // it would keep the namespace alive
	if err := from.Do(func() error {
		out, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 9000)))
		if err != nil {
			return err
		}
		defer out.Close()
		_, err = out.Write([]byte("hello"))
		return err
	}); err != nil {
		return err
	}
	if err := in.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		return err
	}
	_, _, err := in.ReadFromUDPAddrPort(make([]byte, 16))
	return err
}

// descriptors counts those of the host's weftd.
func (h *host) descriptors(t *testing.T) int {
	t.Helper()
	l, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(l)
}

func TestPodsAreAttachedDirectly(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.start(t)
	b.start(t)
	a.awaitReady(t)
	b.awaitReady(t)
	one, two, three := netns.New(t, "one"), netns.New(t, "two"), netns.New(t, "three")
	pods := func(h *host) []podport.Pod {
		l, err := podport.Client{Socket: h.socket()}.Pods(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return l.Pods
	}
	attach := func(h *host, ns *netns.Namespace, id string) podport.Pod {
		p, err := h.attach(t, ns, id)
		if err != nil || p.State != podport.Attached || len(p.Addresses) != 1 {
			t.Fatalf("%s: %+v %v\n%s", id, p, err, h.log.String())
		}
		return p
	}
	p1 := attach(a, one, "one")
	before := a.descriptors(t)
	p3 := attach(a, three, "three")
	p2 := attach(b, two, "two")
	for what, w := range map[string]struct {
		from, to *netns.Namespace
		at       netip.Addr
	}{"across": {one, two, p2.Addresses[0]}, "on one node": {one, three, p3.Addresses[0]},
		"from the host": {a.ns, three, p3.Addresses[0]}} {
		await.OK(t, what, func() error { return hears(t, w.from, w.to, w.at) })
	}
	if l := pods(a); len(l) != 2 || l[0].SentPackets == 0 || l[1].ReceivedPackets == 0 ||
		l[0].LastSeen.IsZero() {
		t.Errorf("counted: %+v", l)
	}

	// A pod may lengthen its queue, whose packets take the host's memory.
	t.Run("a long queue", func(t *testing.T) {
		netns.Root(t, "only root may write /sys/class/net/*/tx_queue_len")
		if err := two.Do(func() error {
			eth0, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			return netlink.LinkSetTxQLen(eth0, 100_000)
		}); err != nil {
			t.Fatal(err)
		}
		await.OK(t, "the pod's queue is as long as weftd's own", func() error {
			l, err := two.Netlink().LinkByName("eth0")
			if err == nil && l.Attrs().TxQLen != podport.QueueLen {
				err = fmt.Errorf("it has %d places", l.Attrs().TxQLen)
			}
			return err
		})
	})

	// A namespace that ends takes port, descriptors and address with it.
	three.Close()
	await.OK(t, "the pod is forgotten", func() error {
		if l := pods(a); len(l) != 1 {
			return fmt.Errorf("%+v", l)
		}
		if _, err := os.Stat(filepath.Join(a.dir, "cbr0", p3.Addresses[0].String())); !errors.Is(err,
			os.ErrNotExist) {
			return fmt.Errorf("its address: %v", err)
		}
		if n := a.descriptors(t); n > before {
			return fmt.Errorf("%d descriptors, %d before", n, before)
		}
		return nil
	})
	if s := a.log.String(); strings.Contains(s, "stays reserved") ||
		strings.Contains(s, "level=WARN msg=\"pod") {
		t.Errorf("%s", s)
	}

	// A detached pod's device goes too.
	c := podport.Client{Socket: b.socket()}
	if _, err := c.Detach(t.Context(), p2.Key); err != nil {
		t.Error(err)
	}
	await.OK(t, "the device is gone", func() error {
		if _, err := two.Netlink().LinkByName("eth0"); err == nil {
			return errors.New("it is there")
		}
		return nil
	})
	if _, err := c.Detach(t.Context(), p2.Key); !errors.Is(err, socket.ErrNotFound) {
		t.Error(err)
	}

	// After a restart weftd knows the pod. It forgets one whose interface goes, which may then be attached anew.
	await.OK(t, "what there is has been written", func() error {
		text, err := os.ReadFile(filepath.Join(a.dir, "cache", statefiles.Pods))
		if err == nil && strings.Contains(string(text), `"three"`) {
			err = errors.New("it has the pod that is gone")
		}
		return err
	})
	a.stop(t, syscall.SIGKILL)
	a.start(t)
	a.awaitReady(t)
	if l := pods(a); len(l) != 1 || l[0].ID != "one" {
		t.Errorf("after a restart: %+v", l)
	}
	if err := a.ns.Do(func() error {
		_, err := podtun.Do(context.Background(),
			podtun.Task{What: podtun.TaskRemove,
				Spec: podtun.Spec{Netns: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), one.FD()), Name: "eth0"}}, nil)
		return err
	}); err != nil {
		t.Error(err)
	}
	await.OK(t, "the pod without an interface is forgotten, and its address is free", func() error {
		if l := pods(a); len(l) > 0 {
			return fmt.Errorf("%+v", l)
		}
		if _, err := os.Stat(filepath.Join(a.dir, "cbr0", p1.Addresses[0].String())); !errors.Is(err,
			os.ErrNotExist) {
			return fmt.Errorf("its address: %v", err)
		}
		return nil
	})
	attach(a, one, "one")
	p2 = attach(b, two, "two")
	await.OK(t, "across, again", func() error { return hears(t, one, two, p2.Addresses[0]) })
}
