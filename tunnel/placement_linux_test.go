package tunnel

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/tunnel/port"
)

// idlePort is a port with so many queues, at which nothing arrives.
type idlePort struct {
	nullPort
	fds []int
}

func newIdlePort(t *testing.T, queues int) *idlePort {
	p := &idlePort{}
	for range queues {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		p.fds = append(p.fds, fd)
	}
	return p
}

func (p *idlePort) PollFD() int                { return p.fds[0] }
func (p *idlePort) ReadBatch(*port.Ring) error { return nil }
func (p *idlePort) LocalAddr() netip.AddrPort  { return netip.MustParseAddrPort("192.0.2.1:8285") }

func (p *idlePort) Queues() (l []port.Queue) {
	for _, fd := range p.fds {
		l = append(l, port.FDQueue{FD: fd, Worker: port.AnyWorker, Read: func(*port.Ring) error { return nil }})
	}
	return l
}

func (p *idlePort) Close() error {
	for _, fd := range p.fds {
		if err := unix.Close(fd); err != nil {
			return err
		}
	}
	return nil
}

// TestEachDirectionHasAWorker attaches the ports of path raw and two pods in either order. With two workers
// one reads every inner queue, and the other both queues of the underlay.
func TestEachDirectionHasAWorker(t *testing.T) {
	for _, c := range []struct {
		workers    int
		underFirst bool
		want       map[Role]int
	}{
		{2, true, map[Role]int{RoleUnderlay: 1}},
		{2, false, map[Role]int{RoleUnderlay: 1}},
		{1, false, nil},
	} {
		e, err := New(Config{Format: encap.FormatIP, Port: 8285, Workers: c.workers})
		if err != nil {
			t.Fatal(err)
		}
		roles := []Role{RoleHost, RoleUnderlay}
		if c.underFirst {
			roles = []Role{RoleUnderlay, RoleHost}
		}
		for _, role := range roles {
			queues := 1
			if role == RoleUnderlay {
				queues = 2
			}
			if _, err := e.Attach(newIdlePort(t, queues), role); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2 {
			o := PodOptions{Addrs: []netip.Addr{addr(fmt.Sprintf("10.1.1.%d", 5+i))}}
			if _, err := e.AttachPod(newIdlePort(t, 1), o); err != nil {
				t.Fatal(err)
			}
		}
		for _, a := range e.attached {
			for _, q := range a.queues {
				if q.worker.index != c.want[a.role] {
					t.Errorf("%+v: worker %d reads a queue of the %v", c, q.worker.index, a.role)
				}
			}
		}
		if err := e.close(); err != nil {
			t.Error(err)
		}
	}
}
