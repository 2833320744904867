package sim

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/lease"
	"weft/routing"
	"weft/tunnel"
	"weft/tunnel/port"
)

// plane is the data plane of a weftd: the product's planner, table and engine, with ports in memory.
type plane struct {
	planner       *routing.Planner
	engine        *tunnel.Engine
	ring          *port.Ring
	host, under   *memoryPort
	hostID, outer tunnel.PortID
	addr          netip.Addr
	config        routing.Network
}

// datagram is a packet on an underlay, with the other end, or on an inner port.
type datagram struct {
	outer netip.AddrPort
	ecn   encap.ECN
	data  []byte
}

// memoryPort is a port.Underlay in memory. Its descriptor is never readable: the cluster says when a port
// is read.
type memoryPort struct {
	fd      int
	local   netip.AddrPort
	in, out []datagram
}

func newPort(local netip.AddrPort) (*memoryPort, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return &memoryPort{fd: fd, local: local}, err
}

// Queues implements port.Port.
func (p *memoryPort) Queues() []port.Queue { return []port.Queue{p} }

// PollFD implements port.Queue.
func (p *memoryPort) PollFD() int { return p.fd }

// ReadBatch hands over what was put in.
func (p *memoryPort) ReadBatch(r *port.Ring) error {
	for len(p.in) > 0 {
		s := r.Slot()
		if s == nil {
			break
		}
		s.Outer, s.OuterECN = p.in[0].outer, p.in[0].ecn
		r.Commit(copy(s.Space(), p.in[0].data))
		p.in = p.in[1:]
	}
	return nil
}

// WriteBatch keeps what the engine writes.
func (p *memoryPort) WriteBatch(_ *port.Ring, ps []*port.Packet) {
	for _, s := range ps {
		p.out = append(p.out, datagram{s.Outer, s.OuterECN, slices.Clone(s.Datagram())})
		s.Delivered()
	}
}

// Close frees the descriptor.
func (p *memoryPort) Close() error { return unix.Close(p.fd) }

// LocalAddr is where datagrams leave from.
func (p *memoryPort) LocalAddr() netip.AddrPort { return p.local }

// carry gives a machine's data plane the table for its Set. It is another data plane if address or network
// are others.
func (c *Cluster) carry(m *machine, p *process, set lease.Set) {
	if set.Own.Subnets == (lease.Subnets{}) { // it has given its subnet up
		c.unplane(m)
		return
	}
	if !set.Own.V4.IsValid() {
		return
	}
	if pl := m.plane; pl != nil && (pl.addr != m.addr || !pl.config.Equal(p.config.NetworkConfig)) {
		c.unplane(m)
	}
	if m.plane == nil {
		if err := c.newPlane(m, p); err != nil {
			c.fail("a data plane is made", "m%d: %v", m.index, err)
			return
		}
	}
	table, _, err := m.plane.planner.Next(set)
	if err != nil {
		c.fail("a table is made", "m%d: %v", m.index, err)
		return
	}
	m.plane.engine.Swap(table)
}

func (c *Cluster) newPlane(m *machine, p *process) (err error) {
	pl := &plane{addr: m.addr, config: p.config}
	if pl.planner, err = routing.NewPlanner(p.config, m.link(), m.node); err != nil {
		return err
	}
	cfg := pl.planner.Engine()
	cfg.Workers, cfg.Clock = 1, func() int64 { return epoch().Add(c.now).UnixNano() }
	pl.ring = c.seen.ring()
	cfg.Ring = func() *port.Ring { return pl.ring }
	if pl.engine, err = tunnel.New(cfg); err != nil {
		return err
	}
	m.plane = pl
	if pl.host, err = newPort(netip.AddrPort{}); err == nil {
		pl.hostID, err = pl.engine.Attach(pl.host, tunnel.RoleHost)
	}
	if err != nil {
		return err
	}
	if pl.under, err = newPort(netip.AddrPortFrom(m.addr, cfg.Port)); err == nil {
		pl.outer, err = pl.engine.Attach(pl.under, tunnel.RoleUnderlay)
	}
	return err
}

// unplane ends a machine's data plane.
func (c *Cluster) unplane(m *machine) {
	if m.plane == nil {
		return
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := m.plane.engine.Run(ended); err != nil {
		c.fail("a data plane ends", "m%d: %v", m.index, err)
	}
	c.seen.rings = append(c.seen.rings, m.plane.ring)
	m.plane = nil
}

// traffic has each machine send a few packets of one flow to a pod of another.
func (c *Cluster) traffic() {
	for _, m := range c.machines {
		o := c.machines[c.rng.IntN(len(c.machines))]
		if o == m || m.plane == nil || c.now < m.asleep || !m.set.Own.V4.IsValid() || !o.set.Own.V4.IsValid() {
			continue
		}
		src, dst := podOf(m.set.Own.V4), podOf(o.set.Own.V4)
		if m.set.Own.V6.IsValid() && o.set.Own.V6.IsValid() && c.flow%2 == 1 {
			src, dst = podOf(m.set.Own.V6), podOf(o.set.Own.V6)
		}
		switch c.rng.IntN(8) {
		case 0:
			if forged := c.machines[c.rng.IntN(len(c.machines))].set.Own.V4; forged.IsValid() {
				src = podOf(forged) // the host sends what is not its own
			}
		case 1:
			c.spoof(m, o)
			continue
		}
		c.flow++
		out := c.send(m, packets(src, dst, c.flow, 3))
		c.cross(m, out)
	}
}

// podOf is the address of a pod in a subnet.
func podOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	b[len(b)-1] += 5
	a, _ := netip.AddrFromSlice(b)
	return a
}

// spoof has m send, past its own data plane, a packet with the source of a third.
func (c *Cluster) spoof(m, o *machine) {
	third := c.machines[c.rng.IntN(len(c.machines))]
	if third.set.Own.V4.IsValid() && m.plane != nil {
		c.flow++
		d := datagram{outer: netip.AddrPortFrom(o.addr, m.plane.under.local.Port()),
			data: packets(podOf(third.set.Own.V4), podOf(o.set.Own.V4), c.flow, 1)[0].data}
		c.cross(m, []datagram{d})
	}
}

// cross has datagrams arrive a little later, unless the link is cut.
func (c *Cluster) cross(m *machine, ds []datagram) {
	if len(ds) == 0 {
		return
	}
	from, to := netip.AddrPortFrom(m.plane.addr, m.plane.under.local.Port()), ds[0].outer
	wait := time.Duration(c.rng.Int64N(int64(20 * time.Millisecond)))
	c.at(c.now+wait, func() {
		for _, r := range c.machines {
			if pl := r.plane; pl != nil && r.addr == to.Addr() && pl.under.local == to && c.now >= r.asleep &&
				c.linked(m, r) && r != m {
				c.receive(r, from, ds)
				return
			}
		}
	})
}
