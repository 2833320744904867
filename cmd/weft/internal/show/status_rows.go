package show

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
	"weft/cmd/internal/podport"
	"weft/cmd/weft/internal/cli"
	"weft/tunnel/port"
)

// rowFunc adds a row to the page of weft status. Rows without a name go on with the one above.
type rowFunc func(name, format string, a ...any)

// configRows prints how the store's network configuration differs from the one in use, and its unknown
// keys. It prints nothing if there is nothing of that.
func configRows(row rowFunc, s control.Status) {
	c, name := s.Config, "config"
	say := func(format string, a ...any) {
		row(name, format, a...)
		name = ""
	}
	if c.Differs {
		switch {
		case c.LastGood:
			say("THE LAST GOOD ONE, since this start could not use the %s's; a good one is taken up by itself",
				storeName(s.Store))
		case len(c.Faults) > 0:
			say("the one that the %s had before: what it has now is not good, and no restart takes it up",
				storeName(s.Store))
		default:
			say("not the %s's: weft reload, or a restart, takes that up", storeName(s.Store))
		}
		say("in use: %s", oneLine(c.InUse))
		if c.Other == "" {
			say("%s: none", storeName(s.Store))
		} else {
			say("%s: %s", storeName(s.Store), oneLine(c.Other))
		}
	}
	for _, f := range c.Faults {
		say("%s", f)
	}
	for _, f := range c.Changes {
		say("a restart changes %s", f)
	}
	for _, f := range c.Unknown {
		say("%s", f)
	}
}

// oneLine is a configuration's text, which may have been written on several lines, for a row.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// controllerRows prints what the operator's controller made of the routes, and nothing where there is none.
func controllerRows(row rowFunc, c *control.Controller, now time.Time) {
	if c == nil {
		return
	}
	p := phrase(c.Controller)
	if c.Taken.IsZero() {
		p.and(true, "has taken no view yet")
	} else {
		p.and(true, "%d routes accepted", c.Accepted)
		p.and(c.Pending > 0, "%d pending", c.Pending)
		p.and(c.Refused > 0, "%d REFUSED", c.Refused)
		p.and(true, "said %s", cli.Ago(c.Taken, now))
	}
	row("controller", "%s", p)
	if c.Fault != "" {
		row("", "%s, since %s", c.Fault, cli.Span(now.Sub(c.Since)))
	}
}

// deviceLines are what the underlay's devices do for datagrams, and how superpackets leave by them.
func deviceLines(s control.Status) (l []string) {
	for _, d := range s.Underlay.Devices {
		l = append(l, d.Name+": "+cli.OrDash(strings.Join(d.Features, " ")))
	}
	if why := s.Underlay.DevicesUnknown; why != "" {
		l = append(l, "what its device does for datagrams is not known: "+why)
	}
	for _, o := range s.Counters.Outlets {
		l = append(l, outletLine(o))
	}
	return l
}

func outletLine(o control.Outlet) string {
	s := fmt.Sprintf("superpackets leave %v ", o.Local)
	switch o.Outlet {
	case port.OutletRuns.String():
		s += "in " + o.Outlet
	case port.OutletCut.String():
		s += o.Outlet + ", each datagram by a send of its own"
	default:
		s += o.Outlet
	}
	return s + ": " + o.Because
}

// rulesRows prints the state of the firewall rules, and nothing before there are any.
func rulesRows(row rowFunc, r control.Rules) {
	if r.Firewall == "" && r.LastError == "" {
		return
	}
	p := phrase(cli.OrDash(r.Firewall))
	p.and(!r.InPlace, "NOT IN PLACE")
	p.and(r.Repaired > 0, "put back: %d", r.Repaired)
	p.and(r.Pods > 0, "%d dropped at the overlay's port, from pods or by a link to no peer",
		r.Pods)
	p.and(r.Strangers > 0, "%d dropped from strangers", r.Strangers)
	p.and(r.Plain > 0, "%d dropped that were not encrypted", r.Plain)
	row("rules", "%s", p)
	if r.LastError != "" {
		row("", "%s", r.LastError)
	}
	for _, n := range r.Notes {
		row("", "%s", n)
	}
}

// custodyRows says who keeps descriptors for the next weftd, and nothing while there are none.
func custodyRows(row rowFunc, k *control.Custody) {
	if k == nil {
		return
	}
	who := "nobody"
	switch k.By {
	case custody.ByHolder:
		who = fmt.Sprintf("a holder, pid %d", k.PID)
	case custody.ByManager:
		who = "the service manager"
	}
	var of []string
	if k.Items > 0 || k.Ports == 0 {
		of = append(of, cli.Count(k.Descriptors, "descriptor")+" of "+cli.Count(k.Items, "pod"))
	}
	if k.Ports > 0 {
		of = append(of, cli.Count(k.PortDescriptors, "descriptor")+" of weftd's own ports")
	}
	line := fmt.Sprintf("%s, kept by %s for the next weftd", strings.Join(of, " and "), who)
	if k.Discarded > 0 {
		line += fmt.Sprintf("; %d packets were too old when they were taken up", k.Discarded)
	}
	row("custody", "%s", line)
	if k.Fault != "" {
		row("", "%s", k.Fault)
	}
}

// podRows say how many pods are attached directly, and that something is wrong with some.
func podRows(row rowFunc, p *control.PodCounts) {
	if p == nil {
		return
	}
	line := phrase(fmt.Sprintf("%d attached directly", p.Attached))
	line.and(p.Waiting > 0, "%d without a port", p.Waiting)
	line.and(p.Missing > 0, "%d MISSING since a restart", p.Missing)
	row("pods", "%s", line)
	if p.Problems > 0 {
		row("", "something is wrong with %d of them: weft pods says what, and what to do", p.Problems)
	}
	passed := func(t podport.Traffic, refused uint64) string {
		return fmt.Sprintf("sent %s, received %s, refused %d", cli.Packets(t.SentPackets, t.SentBytes),
			cli.Packets(t.ReceivedPackets, t.ReceivedBytes), refused)
	}
	row("", "%s", passed(p.Traffic, p.RefusedPackets))
	for _, b := range p.Busiest {
		row("", "  %s %s: %s", cmp.Or(b.Name, b.ID), b.Interface, passed(b.Traffic, b.RefusedPackets))
	}
	if all := p.Attached + p.Waiting + p.Missing; len(p.Busiest) < all {
		row("", "  and %d more, with less traffic: weft pods shows all", all-len(p.Busiest))
	}
	row("", "rules of the host, such as those of a NetworkPolicy, do not see the packets between pods that "+
		"are attached directly")
}

func printCounters(w io.Writer, c control.Counters) error {
	t := cli.NewList(w, "packets", "received", "delivered", "dropped", "")
	for _, f := range []struct {
		name string
		flow control.Flow
	}{{"to peers", c.Egress}, {"from peers", c.Ingress}} {
		t.Row(f.name, cli.Packets(f.flow.Received, f.flow.ReceivedBytes),
			cli.Packets(f.flow.Delivered, f.flow.DeliveredBytes), cli.Total(f.flow.Drops),
			reasons(f.flow.Drops))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := printOffloads(w, c.Offloads); err != nil {
		return err
	}
	if c.SocketOverflow+c.DeviceDropped > 0 {
		fmt.Fprintf(w, "lost in the kernel, whose queues were full: socket %d, device %d\n", c.SocketOverflow,
			c.DeviceDropped)
	}
	if c.HeldBack > 0 {
		fmt.Fprintf(w, "held back: %d of the peers, whose packets filled the queue that others share (the log "+
			"names them)\n", c.HeldBack)
	}
	return nil
}

// printDevices shows what the kernel counted where it moves the packets.
func printDevices(w io.Writer, l []control.DeviceCounters) error {
	if len(l) == 0 {
		_, err := fmt.Fprintf(w, "\nweftd itself moves no packets with this backend: ip -s link counts them\n")
		return err
	}
	t := cli.NewList(w, "the kernel's counts", "sent", "received", "dropped out/in", "errors out/in", "")
	for _, d := range l {
		whose := "all peers together"
		if !d.Overlay {
			whose = "with all else that this host sends there"
		}
		t.Row(d.Name, cli.Packets(d.TxPackets, d.TxBytes), cli.Packets(d.RxPackets, d.RxBytes),
			fmt.Sprintf("%d/%d", d.TxDropped, d.RxDropped), fmt.Sprintf("%d/%d", d.TxErrors, d.RxErrors),
			whose)
	}
	return t.Flush()
}

// printOffloads shows what the kernel does for many packets at once, and for how many.
func printOffloads(w io.Writer, l []control.Offload) error {
	t := cli.NewList(w, "offload", "state", "calls", "packets a call")
	for _, o := range l {
		each := "-"
		if o.Calls > 0 {
			each = fmt.Sprintf("%.1f", float64(o.Packets)/float64(o.Calls))
		}
		t.Row(o.Name, o.State, o.Calls, each)
	}
	return t.Flush()
}

// reasons prints drops as "no_route 3, ttl 1".
func reasons(drops []control.Drop) string {
	var out []string
	for _, d := range drops {
		out = append(out, fmt.Sprintf("%s %d", d.Reason, d.Packets))
	}
	return strings.Join(out, ", ")
}
