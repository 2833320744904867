package wireguard

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
)

// sockets are those that a device's process was given, by what they are bound to. It is safe for concurrent use.
type sockets struct {
	mu sync.Mutex
	by map[netip.AddrPort]*os.File
}

// open implements opener: a duplicate of what was given, which lasts while the device is given another port, and back. The mark is set by
// whoever opened it.
func (s *sockets) open(local netip.AddrPort, _ uint32) (*net.UDPConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.by[local]
	if f == nil {
		return nil, fmt.Errorf("no socket at %v was given", local)
	}
	c, err := net.FilePacketConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UDPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("what was given for %v is no UDP socket", local), c.Close())
	}
	return u, nil
}

// add takes one over, in the place of one at the same address.
func (s *sockets) add(at netip.AddrPort, fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.by[at]; before != nil {
		_ = before.Close() // nothing was written to it
	}
	s.by[at] = os.NewFile(uintptr(fd), at.String())
}

// keep closes all but those at these addresses.
func (s *sockets) keep(only []netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, f := range s.by {
		if !slices.Contains(only, at) {
			_ = f.Close() // as above
			delete(s.by, at)
		}
	}
}

func (s *sockets) addresses() []netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.by), netip.AddrPort.Compare)
}
