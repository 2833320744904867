package ends

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"

	"weft/bench/machine"
	"weft/bench/plan"
	"weft/bench/report"
)

// Plan is what the near end measures.
type Plan struct {
	plan.Config
	// To is where the far end listens; port 0 is any free one.
	To netip.AddrPort
	// Reverse measures the path from the far end too, in turns with the path to it.
	Reverse bool
	// Topology says in the report what lies between the ends; by default it names the two addresses.
	Topology string
}

// Run measures with the far end at the other side of c, and ends it. With an error it still returns the
// document, with what was measured until then.
func Run(ctx context.Context, p Plan, c io.ReadWriteCloser, out plan.Out) (*report.Document, error) {
	if err := p.Check(); err != nil {
		return report.New(), errors.Join(err, c.Close())
	}
	k, err := Dial(ctx, c, p.To)
	if err != nil {
		return report.New(), err
	}
	defer k.Close()
	here := k.here.Addr
	mtu, err := mtuOf(here)
	if err != nil {
		return report.New(), err
	}
	// we do not know the daemons, so we cannot look at their memory
	p.Kinds = slices.DeleteFunc(slices.Clone(p.Kinds), func(k report.Kind) bool { return k == report.Memory })
	path := plan.Path{
		Name: "to", About: fmt.Sprintf("from %s to %s", here, k.at.Addr()), MTU: mtu, IPv6: here.Is6(),
		CPUs: min(runtime.NumCPU(), k.machine.CPUs), Ends: k.There(), Check: k.alive,
	}
	paths := []*plan.Path{&path}
	if p.Reverse {
		back := path
		back.Name, back.About, back.Ends = "from", fmt.Sprintf("from %s to %s", k.at.Addr(), here), k.Back()
		paths = append(paths, &back)
	}
	stage := plan.Stage{Raise: func(context.Context) ([]*plan.Path, error) { return paths, nil }}
	d, err := plan.Run(ctx, p.Config, []plan.Stage{stage}, "", out)
	if d.Topology = p.Topology; d.Topology == "" {
		d.Topology = fmt.Sprintf("%s (%s) and %s (%s)", here, d.Machine.Hostname, k.at.Addr(), k.machine.Hostname)
	}
	d.Notes = append(d.Notes,
		"An Ethernet frame counts 18 bytes more than its IP packet; it is that of the interface here. Sizes "+
			"beyond its MTU are cut down to it.",
		"Processor time is of both machines as a whole, whatever else they do.",
		"A packet rate counts what the receiving program got: its own processor time is a part of what bounds it.")
	if k.machine.Boot != machine.BootID() {
		d.Far = &k.machine
	} else {
		d.Notes = append(d.Notes, "Both ends run on one machine and share its CPUs: a throughput is a cost "+
			"turned round, and predicts no network between two machines.")
	}
	return d, err
}

// mtuOf returns the MTU of the interface with the address.
func mtuOf(a netip.Addr) (int, error) {
	all, err := net.Interfaces()
	if err != nil {
		return 0, fmt.Errorf("list interfaces: %w", err)
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			return 0, fmt.Errorf("addresses of %s: %w", i.Name, err)
		}
		for _, have := range addrs {
			if p, err := netip.ParsePrefix(have.String()); err == nil && p.Addr() == a {
				return i.MTU, nil
			}
		}
	}
	return 0, fmt.Errorf("no interface has %s", a)
}
