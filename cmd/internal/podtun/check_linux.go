package podtun

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/routing/ownthread"
)

// Check says, with all that is wrong, whether the interface is as Make left it.
func Check(s Spec) error {
	ns, err := os.Open(s.Netns)
	if err != nil {
		return fmt.Errorf("the pod's network namespace: %w", err)
	}
	defer ns.Close()
	if err := ownthread.In(int(ns.Fd()), s.check); err != nil {
		return fmt.Errorf("%s in %s: %w", s.Name, s.Netns, err)
	}
	return nil
}

func (s Spec) check() error {
	l, err := netlink.LinkByName(s.Name)
	if err != nil {
		return err
	}
	if !isTUN(l) {
		return fmt.Errorf("it is a %s, and the pod was given a TUN", l.Type())
	}
	var faults []error
	fault := func(format string, a ...any) { faults = append(faults, fmt.Errorf(format, a...)) }
	if l.Attrs().RawFlags&unix.IFF_UP == 0 {
		fault("it is down")
	}
	if got := l.Attrs().MTU; got != s.MTU {
		fault("its MTU is %d, want %d", got, s.MTU)
	}
	have, err := addresses(l)
	if err != nil {
		return err
	}
	for _, a := range s.Addresses {
		if !slices.Contains(have, a) {
			fault("it has no address %s", a)
		}
	}
	routes, err := netlink.RouteList(l, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return err
	}
	for _, dst := range s.routes() {
		want := route(l, dst)
		if !slices.ContainsFunc(routes, func(r netlink.Route) bool {
			return r.Dst != nil && r.Dst.String() == want.Dst.String() && (len(want.Gw) == 0 && len(r.Gw) == 0 ||
				r.Gw.Equal(want.Gw))
		}) {
			fault("it has no route to %s", dst)
		}
	}
	return errors.Join(faults...)
}

func addresses(l netlink.Link) (out []netip.Addr, err error) {
	list, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			out = append(out, ip.Unmap())
		}
	}
	return out, nil
}
