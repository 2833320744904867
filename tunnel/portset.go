package tunnel

import (
	"errors"
	"fmt"
	"net/netip"
)

// portSet is the immutable set of ports that workers see.
type portSet struct {
	queues index[queueID, *queue]
	host   *attached
	under4 *attached
	under6 *attached
	pods   index[netip.Addr, *attached]
}

// index is an immutable map. A copy with one change costs little however large it is, since that touches one shard of them: a node may
// have a thousand pods, and each that comes and goes makes a set of its own.
type index[K comparable, V any] struct {
	shards [shards]map[K]V
}

const shards = 256

// with is x and v at k, which is in that shard.
func (x index[K, V]) with(shard uint8, k K, v V) index[K, V] {
	m := make(map[K]V, len(x.shards[shard])+1)
	for k, v := range x.shards[shard] {
		m[k] = v
	}
	m[k] = v
	x.shards[shard] = m
	return x
}

// without is x less k, which is in that shard.
func (x index[K, V]) without(shard uint8, k K) index[K, V] {
	if len(x.shards[shard]) == 0 {
		return x
	}
	var m map[K]V
	for other, v := range x.shards[shard] {
		if other == k {
			continue
		}
		if m == nil {
			m = make(map[K]V, len(x.shards[shard]))
		}
		m[other] = v
	}
	x.shards[shard] = m
	return x
}

// addrShard spreads the addresses of one subnet over all shards.
func addrShard(a netip.Addr) uint8 {
	b := a.As16()
	return b[15] ^ b[14]*31 ^ b[13]*17
}

// pod is the port of the pod with an address; nil if there is none.
func (s *portSet) pod(a netip.Addr) *attached { return s.pods.shards[addrShard(a)][a] }

// queue is the queue with an id; nil if there is none.
func (s *portSet) queue(id queueID) *queue { return s.queues.shards[uint8(id)][id] }

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
			n.pods = n.pods.with(addrShard(addr), addr, a)
		}
	default:
		return nil, fmt.Errorf("attach port: %v is no role", a.role)
	}
	for _, q := range a.queues {
		n.queues = n.queues.with(uint8(q.id), q.id, q)
	}
	return &n, nil
}

// without is the set less a.
func (s *portSet) without(a *attached) *portSet {
	n := *s
	for _, q := range a.queues {
		n.queues = n.queues.without(uint8(q.id), q.id)
	}
	for _, addr := range a.addrs {
		n.pods = n.pods.without(addrShard(addr), addr)
	}
	for _, slot := range []**attached{&n.host, &n.under4, &n.under6} {
		if *slot == a {
			*slot = nil
		}
	}
	return &n
}
