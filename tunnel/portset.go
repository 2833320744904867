package tunnel

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"github.com/gaissmai/bart"
)

// portSet is the immutable set of ports that workers see.
type portSet struct {
	queues map[queueID]*queue
	host   *attached
	under4 *attached
	under6 *attached
	pods   *bart.Table[*attached] // by their addresses; nil if there is none
}

// pod is the port of the pod with an address; nil if there is none.
func (s *portSet) pod(a netip.Addr) *attached {
	if s.pods == nil {
		return nil
	}
	p, _ := s.pods.Lookup(a)
	return p
}

// queue is the queue with an id; nil if there is none.
func (s *portSet) queue(id queueID) *queue { return s.queues[id] }

// with is the set and a. The set itself is unchanged.
func (s *portSet) with(a *attached) (*portSet, error) {
	n := *s
	switch a.role {
	case RoleHost:
		if n.host != nil {
			return nil, errors.New("attach host port: there is one already")
		}
		n.host = a
	case RoleUnderlay:
		slot := &n.under4
		if a.outer6 {
			slot = &n.under6
		}
		if *slot != nil {
			return nil, errors.New("attach underlay port: there is one of that family already")
		}
		*slot = a
	case RolePod:
		for _, addr := range a.addrs {
			if n.pod(addr) != nil {
				return nil, fmt.Errorf("attach pod port: %v is another pod's", addr)
			}
			if n.pods == nil {
				n.pods = new(bart.Table[*attached])
			}
			n.pods = n.pods.InsertPersist(host(addr), a)
		}
	default:
		return nil, fmt.Errorf("attach port: %v is no role", a.role)
	}
	if n.queues = maps.Clone(s.queues); n.queues == nil {
		n.queues = map[queueID]*queue{}
	}
	for _, q := range a.queues {
		n.queues[q.id] = q
	}
	return &n, nil
}

// without is the set less a.
func (s *portSet) without(a *attached) *portSet {
	n := *s
	n.queues = maps.Clone(s.queues)
	for _, q := range a.queues {
		delete(n.queues, q.id)
	}
	for _, addr := range a.addrs {
		n.pods = n.pods.DeletePersist(host(addr))
	}
	for _, slot := range []**attached{&n.host, &n.under4, &n.under6} {
		if *slot == a {
			*slot = nil
		}
	}
	return &n
}
