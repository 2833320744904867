package underlay

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weft/routing/internal/kernel"
)

// refreshed returns the underlay as it is now. chosen is what was chosen at the start, u what has been in
// use since, and l shows the link and its addresses now. An address that was chosen is used as long as the
// link has it, also again after it was away. If it is gone and replace is set, the link's next best takes
// its place, and is advertised if the old one was. lost says what is missing; it is empty if nothing is.
func (u Link) refreshed(chosen Link, l listing, o Options, replace bool) (now Link, lost string) {
	i := slices.IndexFunc(l.links, func(d kernel.Device) bool { return d.Name == chosen.Name })
	if i < 0 {
		return u, fmt.Sprintf("link %s is gone", chosen.Name)
	}
	link := l.links[i]
	now = u
	now.Index, now.MTU = link.Index, link.MTU
	var missing []string
	for _, f := range []struct {
		on, six                   bool
		chosen, chosenExt, public netip.Addr
		addr, ext                 *netip.Addr
	}{
		{o.IPv4, false, chosen.Addr4, chosen.Ext4, o.PublicIP, &now.Addr4, &now.Ext4},
		{o.IPv6, true, chosen.Addr6, chosen.Ext6, o.PublicIPv6, &now.Addr6, &now.Ext6},
	} {
		if !f.on && !f.chosen.IsValid() {
			continue
		}
		next, _ := l.pick(candidate{index: link.Index, addr: f.chosen}, f.six, o)
		has := func(a netip.Addr) bool {
			return slices.ContainsFunc(l.addrs, func(k kernel.AddrInfo) bool {
				return k.Index == link.Index && k.Addr == a && !k.Failed
			})
		}
		switch {
		case f.chosen.IsValid() && has(f.chosen):
			*f.addr, *f.ext = f.chosen, f.chosenExt
		case f.addr.IsValid() && has(*f.addr):
		case next.IsValid() && (replace || !f.addr.IsValid()):
			if *f.addr = next; !f.public.IsValid() {
				*f.ext = next
			} else {
				*f.ext = f.public
			}
		case f.addr.IsValid():
			missing = append(missing, fmt.Sprintf("link %s has no address %v", link.Name, *f.addr))
		}
	}
	if !link.Up {
		missing = append(missing, fmt.Sprintf("link %s is down", link.Name))
	}
	return now, strings.Join(missing, "; ")
}
