package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/routing/probe"
)

// Matrix implements control.ProbeService.
func (d *Daemon) Matrix(ctx context.Context) (control.Matrix, error) {
	g, waiting := d.current()
	switch {
	case g == nil:
		return control.Matrix{}, fmt.Errorf("%w: there is no overlay yet: %s", control.ErrRefused, waiting)
	case g.prober == nil:
		return control.Matrix{}, fmt.Errorf("%w: this node asks nobody (--probe=false, or Backend.Probe)",
			control.ErrRefused)
	}
	began := time.Now()
	m, err := g.prober.Matrix(ctx)
	if err != nil {
		return control.Matrix{}, err
	}
	set, _ := g.state()
	self := control.MatrixNode{Name: d.called(g.member.Status().Own), NodeID: d.identity(), Self: true,
		Address: set.Own.Address()}
	for _, s := range []netip.Prefix{set.Own.V4, set.Own.V6} {
		if s.IsValid() {
			self.Subnets = append(self.Subnets, s)
		}
	}
	out := matrixOf(m, self, g.peers())
	out.At, out.Took, out.Port = time.Now(), time.Since(began), g.network.config.Facts().Port
	return out, nil
}

// matrixOf joins what was gathered with what the records say of the nodes.
func matrixOf(m probe.Matrix, self control.MatrixNode, peers []lease.Record) control.Matrix {
	type entry struct {
		key  string // Way.Peer, "" for this node
		node control.MatrixNode
	}
	all := []entry{{"", self}}
	for _, r := range peers {
		p := control.PeerOf(r)
		all = append(all, entry{cmp.Or(r.Node(), r.Called()),
			control.MatrixNode{Name: p.Name, NodeID: p.NodeID, Subnets: p.Subnets, Address: p.Address}})
	}
	slices.SortStableFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.node.Name, b.node.Name), cmp.Compare(a.key, b.key))
	})
	at, weft := map[string]int{}, map[string]bool{}
	for i, e := range all {
		at[e.key] = i
	}
	for _, r := range peers {
		weft[cmp.Or(r.Node(), r.Called())] = r.Weft != nil
	}
	rows := map[string]*probe.Row{}
	for i := range m.Rows {
		rows[m.Rows[i].Peer] = &m.Rows[i]
	}
	out := control.Matrix{Full: m.Full}
	for _, e := range all {
		e.node.Seen = []control.MatrixCell{}
		r := rows[e.key]
		if r == nil { // its record is not used
			e.node.Tells, e.node.Reason = "no", "this node does not use its record: weft peers here says why"
			out.Nodes = append(out.Nodes, e.node)
			continue
		}
		e.node.Tells, e.node.Reason = tells(r.Telling, weft[e.key])
		e.node.Of, e.node.Answering, e.node.Silent, e.node.Lossy = r.Of, r.Answering, r.Silent, r.Lossy
		for i := range r.Cells {
			c := &r.Cells[i]
			x := cellOf(c)
			if n, ok := at[c.Peer]; ok && (c.Peer != "" || c.Here) {
				x.Node, x.Name = n, all[n].node.Name
			}
			e.node.Seen = append(e.node.Seen, x)
		}
		out.Nodes = append(out.Nodes, e.node)
	}
	return out
}

// tells puts in words whether a node has told, and why it has not.
func tells(t probe.Telling, weft bool) (word, reason string) {
	switch t {
	case probe.Told:
		return "yes", ""
	case probe.Partly:
		return "partly", "more than is taken, or no more came in time"
	case probe.Unheard:
		return "no", "it does not answer this node"
	case probe.Late:
		return "no", "it answers, but did not tell in time: it is busy, or was asked by too many at once"
	case probe.Old:
		return "no", "it answers, but its version of weft does not tell"
	case probe.Mute:
	}
	if weft {
		return "no", "it runs without probes, or this node cannot ask them; its kernel is asked by ICMP"
	}
	return "no", "it runs flannel, which does not tell; its kernel is asked by ICMP"
}

// cellOf converts a cell of a node that is not known.
func cellOf(c *probe.Cell) control.MatrixCell {
	x := control.MatrixCell{
		Node: -1, Address: c.Addr, By: "udp", Answers: c.Answers.String(), For: int64(c.For / time.Second),
		RTT:   c.RTT.Nanoseconds(),
		Lossy: c.Lossy, LargeLost: c.Hole, PathMTU: c.PathMTU, Heard: c.Heard,
		Silence: control.SilenceOf(c.Silence),
	}
	share := func(percent int) *float64 {
		if percent < 0 {
			return nil
		}
		f := float64(percent) / 100
		return &f
	}
	x.LossOut, x.LossIn = share(c.Out), share(c.In)
	if c.ByICMP {
		x.By, x.Loss, x.LossOut, x.LossIn = "icmp", x.LossOut, nil, nil
	}
	return x
}

// Ask implements control.ProbeService.
func (d *Daemon) Ask(ctx context.Context, r control.AskRequest) (control.Asked, error) {
	g, waiting := d.current()
	switch {
	case g == nil:
		return control.Asked{}, fmt.Errorf("%w: there is no overlay yet: %s", control.ErrRefused, waiting)
	case g.prober == nil:
		return control.Asked{}, fmt.Errorf("%w: this node asks nobody (--probe=false, or Backend.Probe)",
			control.ErrRefused)
	}
	got, err := g.prober.Ask(ctx, r.Address, probe.Series{Count: r.Count, Interval: r.Interval,
		Timeout: r.Timeout})
	if err != nil {
		return control.Asked{}, fmt.Errorf("%v: %w: no peer of this node answers weft's questions there", r.Address,
			control.ErrNotFound)
	}
	return control.Asked{RTTs: got.RTTs, Refused: got.Refused, Unsent: got.Unsent}, nil
}
