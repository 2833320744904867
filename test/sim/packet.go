package sim

import (
	"net/netip"
	"slices"

	"weft/lease"
	"weft/tunnel"
)

// send has the host of m send packets, and returns the datagrams that leave. Each goes to the owner of its
// destination in m's view, in the order in which they were sent.
func (c *Cluster) send(m *machine, ds []datagram) []datagram {
	pl := m.plane
	before := pl.engine.Stats().Egress
	pl.host.in = ds
	c.turn(m, pl.hostID)
	out := pl.under.out
	pl.under.out, pl.host.out = nil, nil // what comes back to the host are ICMP errors
	c.books(m, "egress", before, pl.engine.Stats().Egress, len(ds), len(out))
	last := -1
	for _, d := range out {
		switch dst := destination(d.data); {
		case !owner(m.set, d.outer.Addr(), dst):
			c.fail("a packet goes to the owner", "m%d sends a packet for %s to %s", m.index, dst, d.outer)
		case number(d.data) <= last:
			c.fail("order within a flow", "m%d sends packet %d after %d", m.index, number(d.data), last)
		case forged(m.set, source(d.data)):
			c.fail("no packet from a stranger", "m%d sends a packet from %s, which is a peer's", m.index,
				source(d.data))
		}
		last = number(d.data)
	}
	return out
}

// receive has datagrams arrive at r, and returns what its host is handed: only packets between the owners of
// their addresses in r's view, in the order in which they arrived.
func (c *Cluster) receive(r *machine, from netip.AddrPort, ds []datagram) (delivered int) {
	pl := r.plane
	before := pl.engine.Stats().Ingress
	var order []int
	for _, d := range ds {
		d.outer = from
		pl.under.in = append(pl.under.in, d)
		order = append(order, number(d.data))
	}
	c.turn(r, pl.outer)
	out := pl.host.out
	pl.host.out, pl.under.out = nil, nil
	c.books(r, "ingress", before, pl.engine.Stats().Ingress, len(ds), len(out))
	for _, d := range out {
		src, dst := source(d.data), destination(d.data)
		if !r.set.Own.Contains(dst) || !owner(r.set, from.Addr(), src) {
			c.fail("no packet from a stranger", "m%d delivers a packet from %s, which came from %s, to %s", r.index,
				src, from, dst)
		}
		at := slices.Index(order, number(d.data))
		if at < 0 {
			c.fail("order within a flow", "m%d delivers packet %d out of its turn", r.index, number(d.data))
			return 0
		}
		order = order[at+1:]
	}
	c.log("m%d: %d packets of %d from %s delivered", r.index, len(out), len(ds), from.Addr())
	return len(out)
}

// turn has a port read until nothing is left.
func (c *Cluster) turn(m *machine, id tunnel.PortID) {
	for {
		if moved, err := m.plane.engine.Turn(id); err != nil {
			c.fail("a port is read", "m%d: %v", m.index, err)
			return
		} else if !moved {
			return
		}
	}
}

// books checks that what was received is delivered or dropped with a reason.
func (c *Cluster) books(m *machine, way string, before, after tunnel.Flow, received, delivered int) {
	drops := uint64(0)
	for i := range after.Drops {
		drops += after.Drops[i] - before.Drops[i]
	}
	if got := after.Received - before.Received; got != uint64(received) ||
		after.Delivered-before.Delivered != uint64(delivered) || got != uint64(delivered)+drops {
		c.fail("received = delivered + drops", "m%d, %s: %d packets, of which %d left: %d received, %d "+
			"delivered, %d dropped", m.index, way,
			received, delivered, got, after.Delivered-before.Delivered, drops)
	}
}

// owner reports whether the peer at an outer address owns an inner one, in a Set.
func owner(set lease.Set, outer, inner netip.Addr) bool {
	return slices.ContainsFunc(set.Peers, func(r lease.Record) bool {
		return r.PublicIP == outer && (r.Contains(inner) || r.PublicIP == inner)
	})
}

// forged reports whether an inner source is that of a peer, reached or not.
func forged(set lease.Set, inner netip.Addr) bool {
	return slices.ContainsFunc(set.Peers, func(r lease.Record) bool { return r.Contains(inner) })
}

// pass sends a packet from each machine to each other over wires without fault, and says between whom it does
// not arrive.
func (c *Cluster) pass() (format string, a []any) {
	for _, m := range c.machines {
		for _, r := range c.machines {
			if m == r || m.gone || r.gone || m.plane == nil || r.plane == nil {
				continue
			}
			ways := [][2]netip.Prefix{{m.set.Own.V4, r.set.Own.V4}, {m.set.Own.V6, r.set.Own.V6}}
			for _, w := range ways {
				if !w[0].IsValid() || !w[1].IsValid() {
					continue
				}
				c.flow++
				out := c.send(m, packets(podOf(w[0]), podOf(w[1]), c.flow, 1))
				if len(out) != 1 || out[0].outer != r.plane.under.local {
					return "m%d has no way to m%d", []any{m.index, r.index}
				}
				if c.receive(r, m.plane.under.local, out) != 1 {
					return "m%d does not take what m%d sends", []any{r.index, m.index}
				}
			}
		}
	}
	return "", nil
}
