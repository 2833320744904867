package tunnel_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/tunnel/port"
)

// keptKind opens a kind of port with n queues and lanes in the current namespace, of what was kept if from is
// not nil.
type keptKind struct {
	name string
	open func(from *port.Kept, local string, n int) (port.Port, error)
}

func keptKinds() []keptKind {
	under := func(from *port.Kept, local string, n int) port.UDPOptions {
		return port.UDPOptions{Local: outer(local), Queues: n, Lanes: n, From: from}
	}
	return []keptKind{
		{port.KindTUN, func(from *port.Kept, _ string, n int) (port.Port, error) {
			return port.OpenTUN(port.TUNOptions{Name: "flannel0", Queues: n, From: from})
		}},
		{port.KindOffload, func(from *port.Kept, _ string, n int) (port.Port, error) {
			return port.OpenOffloadTUN(port.TUNOptions{Name: "flannel0", Queues: n, From: from})
		}},
		{port.KindUDP, func(from *port.Kept, local string, n int) (port.Port, error) {
			return port.ListenUDP(under(from, local, n))
		}},
		{port.KindSockets, func(from *port.Kept, local string, n int) (port.Port, error) {
			return port.ListenOffload(under(from, local, n))
		}},
		{port.KindIPIP, func(from *port.Kept, local string, n int) (port.Port, error) {
			return port.ListenIPIP(under(from, local, n))
		}},
		{port.KindRaw, func(from *port.Kept, local string, n int) (port.Port, error) {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return nil, err
			}
			r, err := port.OpenRaw(port.RawOptions{UDPOptions: under(from, local, n), Link: link.Attrs().Index,
				TAP: "weft-tx4"})
			if err != nil {
				return nil, err
			}
			return r, r.Listen()
		}},
	}
}

// opened opens a port in h.
func (k keptKind) opened(t *testing.T, h *host, from *port.Kept, local string, n int) (p port.Port,
	err error) {
	t.Helper()
	h.Do(t, func() error { p, err = k.open(from, local, n); return nil })
	return p, err
}

// queues is how many queues a port has.
func queues(p port.Port) int {
	if q, ok := p.(interface{ Queues() []port.Queue }); ok {
		return len(q.Queues())
	}
	return 1
}

// TestKept closes a port while somebody else has its descriptors, and makes it again of these, time after
// time: it is the same port.
func TestKept(t *testing.T) {
	t.Parallel()
	for _, k := range keptKinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			h, peer := newHost(t), newHost(t)
			wire(t, h, peer, "192.0.2.1/24", "192.0.2.2/24", 1500)
			p, err := k.opened(t, h, nil, "192.0.2.1", 4)
			if err != nil {
				t.Fatal(err)
			}
			want := queues(p)
			for range 3 {
				kept, err := p.(port.KeepablePort).Keep()
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
				b, err := json.Marshal(kept) // as a holder has it
				again := port.Kept{FDs: kept.FDs}
				if err = errors.Join(err, json.Unmarshal(b, &again)); err != nil {
					t.Fatal(err)
				}
				if p, err = k.opened(t, h, &again, "192.0.2.1", 4); err != nil {
					t.Fatal(err)
				}
				if got := queues(p); got != want || len(again.FDs) > 0 {
					t.Errorf("%d queues, want %d; %d descriptors are left", got, want, len(again.FDs))
				}
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if p, err = k.opened(t, h, nil, "192.0.2.1", 4); err != nil { // nobody has it any more
				t.Fatal(err)
			}
			_ = p.Close()
		})
	}
}

// TestPortsAreNotInGosPoller: the workers wait for packets themselves. Go's poller would wake two more
// threads for each. The test runs alone, since the engines of others wait for such descriptors.
func TestPortsAreNotInGosPoller(t *testing.T) {
	for _, k := range keptKinds() {
		t.Run(k.name, func(t *testing.T) {
			h, peer := newHost(t), newHost(t)
			wire(t, h, peer, "192.0.2.1/24", "192.0.2.2/24", 1500)
			p, err := k.opened(t, h, nil, "192.0.2.1", 2)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			kept, err := p.(port.KeepablePort).Keep()
			if err != nil {
				t.Fatal(err)
			}
			defer kept.Close()
			waits := waitedFor(t)
			for _, fd := range kept.FDs {
				if what := fileOf(fd); slices.Contains(waits, what) || what == "" {
					t.Errorf("an epoll instance waits for %q", what)
				}
			}
		})
	}
}

// fileOf says what a descriptor is: a device's file, or a socket's inode.
func fileOf(fd int) string {
	what, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return what
}

// waitedFor describes all descriptors that are in an epoll instance of this process.
func waitedFor(t *testing.T) (all []string) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	polls := 0
	for _, e := range fds {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fileOf(fd) != "anon_inode:[eventpoll]" {
			continue
		}
		polls++
		info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(info), "\n") {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "tfd:" {
				n, err := strconv.Atoi(f[1])
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, fileOf(n))
			}
		}
	}
	if polls == 0 {
		t.Fatal("Go's poller was not found")
	}
	return all
}

// TestUnfit offers what was kept where another port is wanted: it is not taken up, the descriptors are
// closed, and the error says so. It runs alone, since a number that it closes would go to another test.
func TestUnfit(t *testing.T) {
	for _, k := range keptKinds() {
		t.Run(k.name, func(t *testing.T) {
			h, peer, other := newHost(t), newHost(t), newHost(t)
			wire(t, h, peer, "192.0.2.1/24", "192.0.2.2/24", 1500)
			wire(t, other, newHost(t), "192.0.2.1/24", "192.0.2.2/24", 1500)
			h.Do(t, func() error { return addAddr("eth0", "192.0.2.9/24") })
			p, err := k.opened(t, h, nil, "192.0.2.1", 2)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			tun := k.name == port.KindTUN || k.name == port.KindOffload
			null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(null)
			for _, tt := range []struct {
				name   string
				change func(*port.Kept)
				on     *host
				local  string
				queues int
				not    bool // no fault of this kind
			}{
				{name: "another kind", change: func(k *port.Kept) { k.Kind = "other" }},
				{name: "a later version", change: func(k *port.Kept) { k.Version++ }},
				{name: "nothing told", change: func(k *port.Kept) { k.About = nil }},
				{name: "nonsense told", change: func(k *port.Kept) {
					k.About = json.RawMessage(`{"frames":-1,"sockets":1,"queues":2}`)
				}},
				{name: "a descriptor less", change: func(k *port.Kept) {
					_ = unix.Close(k.FDs[0])
					k.FDs = k.FDs[1:]
				}},
				{name: "no such descriptor", change: func(k *port.Kept) {
					_ = unix.Dup3(null, k.FDs[0], unix.O_CLOEXEC)
				}},
				{name: "another namespace", on: other},
				{name: "another address", local: "192.0.2.9", not: tun},
				{name: "more queues", queues: 3, not: k.name == port.KindUDP || k.name == port.KindIPIP},
			} {
				if tt.not {
					continue
				}
				if tt.on == nil {
					tt.on = h
				}
				kept, err := p.(port.KeepablePort).Keep()
				if err != nil {
					t.Fatal(err)
				}
				if tt.change != nil {
					tt.change(&kept)
				}
				fds := kept.FDs
				got, err := k.opened(t, tt.on, &kept, either(tt.local, "192.0.2.1"), max(2, tt.queues))
				if err == nil {
					_ = got.Close()
				}
				if !errors.Is(err, port.ErrUnfit) {
					t.Errorf("%s: %v", tt.name, err)
				}
				if len(kept.FDs) > 0 {
					t.Errorf("%s: descriptors are left: %v of %v", tt.name, kept.FDs, fds)
				}
			}
		})
	}
}

func either(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// TestKeptClosesWhatItCannotUse gives sockets whose filter the kernel does not let go (SO_LOCK_FILTER): no
// port comes, and no descriptor stays. It runs alone for the same reason.
func TestKeptClosesWhatItCannotUse(t *testing.T) {
	for _, k := range keptKinds() {
		if k.name == port.KindTUN || k.name == port.KindOffload {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			h, peer := newHost(t), newHost(t)
			wire(t, h, peer, "192.0.2.1/24", "192.0.2.2/24", 1500)
			p, err := k.opened(t, h, nil, "192.0.2.1", 1)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			kept, err := p.(port.KeepablePort).Keep()
			if err != nil {
				t.Fatal(err)
			}
			fds := kept.FDs
			for _, fd := range fds {
				if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1); err != nil &&
					!errors.Is(err, unix.ENOTSOCK) {
					t.Fatal(err)
				}
			}
			if got, err := k.opened(t, h, &kept, "192.0.2.1", 1); err == nil {
				_ = got.Close()
				t.Error("a port was made of it")
			}
			for _, fd := range fds {
				if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
					t.Errorf("descriptor %d is still open: %v", fd, err)
				}
			}
		})
	}
}
