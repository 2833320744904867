package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"weft/cmd/internal/control"
	"weft/cmd/internal/pcapfilter"
	"weft/cmd/weftd/internal/sniff"
	"weft/routing"
	"weft/tunnel"
)

// kernelCapture is a capture of packets that the kernel moves: a packet socket on each device that they pass.
type kernelCapture struct {
	open *atomic.Int32 // how many there are
	taps []*sniff.Tap
	peer *captured
	turn int
}

// tap is a device, with a filter for what of the overlay is seen there.
type tap struct{ device, filter string }

// taps lists where to look.
func (g *overlay) taps(r control.CaptureRequest) (l []tap, err error) {
	st, facts := g.backend.Status(), g.network.config.Facts()
	underlay := st.Underlay.Name
	network := ""
	for _, n := range []netip.Prefix{g.network.config.Network, g.network.config.IPv6Network} {
		if !n.IsValid() {
			continue
		}
		if network != "" {
			network += " or "
		}
		network += "net " + n.Masked().String()
	}
	direct := slices.ContainsFunc(st.Reached, func(w routing.Reached) bool { return w.How == routing.HowRoute })
	switch {
	case r.Dropped && !r.Inner && !r.Outer:
		return nil, fmt.Errorf("the kernel moves the packets of a %s network, and does not say which it drops: "+
			"ip -s -s link, nstat -az, or perf trace -e skb:kfree_skb count them", st.Type)
	case r.Outer && facts.Port == 0 && facts.Guard.Protocol == 0:
		return nil, fmt.Errorf("a %s network has no outer packets: they travel as they are, and --inner shows them",
			st.Type)
	case len(st.Devices) == 0 || underlay == "":
		return nil, errors.New("there is no device yet")
	}
	if r.Inner {
		for _, dev := range st.Devices {
			if dev != underlay {
				l = append(l, tap{dev, ""})
			}
		}
		if direct || len(l) == 0 { // routed to the nodes without a tunnel
			l = append(l, tap{underlay, network})
		}
	}
	if r.Outer {
		outer := fmt.Sprintf("udp port %d", facts.Port)
		if facts.Port6 != 0 {
			outer += fmt.Sprintf(" or udp port %d", facts.Port6)
		}
		if facts.Port == 0 {
			outer = fmt.Sprintf("ip proto %d", facts.Guard.Protocol)
		}
		l = append(l, tap{underlay, outer})
	}
	return l, nil
}

func (c *captures) ofKernel(g *overlay, r control.CaptureRequest, peer *captured) (captureSource, error) {
	taps, err := g.taps(r)
	if err != nil {
		return nil, err
	}
	if c.kernel.Add(1) > tunnel.MaxCaptures {
		c.kernel.Add(-1)
		return nil, tunnel.ErrTooManyCaptures
	}
	k := &kernelCapture{open: &c.kernel, peer: peer}
	for _, at := range taps {
		text := allOf(at.filter, peer.filter(), r.Filter)
		filter, err := pcapfilter.Compile(text)
		if err == nil {
			var t *sniff.Tap
			if program, bad := filter.Program(); bad != nil {
				err = bad
			} else if t, err = sniff.Open(at.device, program, r.SnapLen); err == nil {
				k.taps = append(k.taps, t)
			}
		}
		if err != nil {
			k.close()
			return nil, err
		}
	}
	return k, nil
}

func (c *kernelCapture) next() (control.CapturedPacket, bool, error) {
	for range c.taps {
		p, ok, err := c.taps[c.turn].Next()
		if err != nil {
			return control.CapturedPacket{}, false, err
		}
		if ok {
			return c.packet(p), true, nil
		}
		c.turn = (c.turn + 1) % len(c.taps)
	}
	return control.CapturedPacket{}, false, nil
}

func (c *kernelCapture) packet(p sniff.Packet) control.CapturedPacket {
	out := control.CapturedPacket{Time: p.Time, Outbound: p.Outbound, Length: p.Length, Data: p.Data}
	if c.peer != nil && len(c.peer.addrs) > 0 {
		out.Peer, out.Address = c.peer.name, c.peer.addrs[0]
	}
	return out
}

// allOf is the filter that all of these together are, of which some may be "".
func allOf(filters ...string) string {
	var all []string
	for _, f := range filters {
		if f != "" {
			all = append(all, "("+f+")")
		}
	}
	return strings.Join(all, " and ")
}

// filter lets through what is to or from the peer's host or its pods. The kernel applies it, so that what
// others send on a busy device occupies nobody. It is "" for every peer, nil.
func (c *captured) filter() string {
	if c == nil {
		return ""
	}
	var any []string
	for _, a := range c.addrs {
		any = append(any, "host "+a.String())
	}
	for _, n := range c.inner {
		any = append(any, "net "+n.Masked().String())
	}
	return strings.Join(any, " or ")
}

func (c *kernelCapture) missed() (n uint64) {
	for _, t := range c.taps {
		n += t.Missed()
	}
	return n
}

func (c *kernelCapture) close() {
	for _, t := range c.taps {
		_ = t.Close() // it is only read from
	}
	c.open.Add(-1)
}
