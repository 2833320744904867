package tunnel

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"github.com/gaissmai/bart"
)

// portSet is an immutable set of attached ports.
type portSet struct {
	queues map[queueID]*queue
	host   *attachedPort
	under4 *attachedPort
	under6 *attachedPort
	pods   *bart.Table[*attachedPort] // by pod address; nil if there are no pods
}

// pod returns the port of the pod with address a, or nil.
func (s *portSet) pod(a netip.Addr) *attachedPort {
	if s.pods == nil {
		return nil
	}
	p, _ := s.pods.Lookup(a)
	return p
}

// queue returns the queue with that id, or nil.
func (s *portSet) queue(id queueID) *queue { return s.queues[id] }

// with returns a set with a added. s is unchanged.
func (s *portSet) with(a *attachedPort) (*portSet, error) {
	n := *s
	switch a.role {
	case RoleHost:
		if n.host != nil {
			return nil, errors.New("attach host port: one is attached already")
		}
		n.host = a
	case RoleUnderlay:
		slot := &n.under4
		if a.outer6 {
			slot = &n.under6
		}
		if *slot != nil {
			return nil, errors.New("attach underlay port: one of that family is attached already")
		}
		*slot = a
	case RolePod:
		for _, addr := range a.addrs {
			if n.pod(addr) != nil {
				return nil, fmt.Errorf("attach pod port: %v is another pod's", addr)
			}
			if n.pods == nil {
				n.pods = new(bart.Table[*attachedPort])
			}
			n.pods = n.pods.InsertPersist(host(addr), a)
		}
	default:
		return nil, fmt.Errorf("attach port: invalid role %v", a.role)
	}
	if n.queues = maps.Clone(s.queues); n.queues == nil {
		n.queues = map[queueID]*queue{}
	}
	for _, q := range a.queues {
		n.queues[q.id] = q
	}
	return &n, nil
}

// without returns a set with a removed. s is unchanged.
func (s *portSet) without(a *attachedPort) *portSet {
	n := *s
	n.queues = maps.Clone(s.queues)
	for _, q := range a.queues {
		delete(n.queues, q.id)
	}
	for _, addr := range a.addrs {
		n.pods = n.pods.DeletePersist(host(addr))
	}
	for _, slot := range []**attachedPort{&n.host, &n.under4, &n.under6} {
		if *slot == a {
			*slot = nil
		}
	}
	return &n
}
