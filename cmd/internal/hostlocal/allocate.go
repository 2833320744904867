package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/pkg/utils"
)

// Allocation is what a holder has been given.
type Allocation struct {
	// Addresses has one for each subnet that was asked for, in that order, with the subnet's length.
	Addresses []netip.Prefix
	// New are those that the holder did not have before. To undo the allocation, free these alone.
	New []netip.Addr
}

// Gateway returns the address of subnet that host-local keeps for the gateway: the first one after the
// network's own.
func Gateway(subnet netip.Prefix) netip.Addr { return subnet.Masked().Addr().Next() }

// Allocate gives h an address in each of subnets, which are host-local's ranges in their order. An address
// that h has in a subnet already stays its own, so that the same question has the same answer. Otherwise it
// is the one of wanted that lies in the subnet, or the first free one after that which was given last, by
// whomever. If one of the subnets has none, an error that wraps ErrFull, nothing is changed. A wanted address
// that another one has is a *TakenError.
func (s Store) Allocate(ctx context.Context, h Holder, subnets []netip.Prefix,
	wanted ...netip.Addr) (out Allocation, err error) {
	if err := utils.ValidateContainerID(h.Container); err != nil { // else it could not be read back
		return Allocation{}, err
	}
	if err := utils.ValidateInterfaceName(h.Interface); err != nil {
		return Allocation{}, err
	}
	pools, err := poolsOf(subnets, wanted)
	if err != nil {
		return Allocation{}, err
	}
	err = s.change(ctx, func(dir string) error {
		if err := leftovers(dir); err != nil {
			return err
		}
		list, unreadable := s.Reservations()
		if list == nil && unreadable != nil {
			return unreadable
		}
		out, err = choose(pools, h, list, func(i int) netip.Addr { return last(dir, i) })
		if err != nil {
			return errors.Join(err, unreadable)
		}
		return write(dir, pools, h, out)
	})
	if err != nil {
		return Allocation{}, fmt.Errorf("addresses of network %s, in %s: %w", s.Network, s.Dir, err)
	}
	return out, nil
}

// write makes the files of what is new, or none of them.
func write(dir string, pools []pool, h Holder, a Allocation) error {
	var faults []error
	for _, addr := range a.New {
		i := slices.IndexFunc(pools, func(p pool) bool { return p.subnet.Contains(addr) })
		faults = append(faults, reserve(dir, addr, h), os.WriteFile(lastFile(dir, i), []byte(addr.String()), 0o600))
	}
	err := errors.Join(faults...)
	for _, addr := range a.New {
		if err != nil {
			_ = os.Remove(filepath.Join(dir, addr.String())) // where it fails there is none, or it stays reserved
		}
	}
	return err
}

// choose decides, and changes nothing.
func choose(pools []pool, h Holder, list []Reservation, last func(i int) netip.Addr) (Allocation, error) {
	var out Allocation
	own, holders := ofHolder(list, h), map[netip.Addr]Holder{}
	for _, r := range list {
		holders[r.Address] = r.Holder
	}
	for i, p := range pools {
		if k := slices.IndexFunc(own, func(r Reservation) bool { return p.subnet.Contains(r.Address) }); k >= 0 {
			has := own[k].Address
			if p.wanted.IsValid() && p.wanted != has {
				return Allocation{}, fmt.Errorf("%s has %s, and has to give that up before it can have %s", h,
					has, p.wanted)
			}
			out.Addresses = append(out.Addresses, netip.PrefixFrom(has, p.subnet.Bits()))
			continue
		}
		addr := p.wanted
		holder, used := holders[addr]
		switch {
		case !addr.IsValid():
			if addr = p.next(last(i), holders); !addr.IsValid() {
				return Allocation{}, fmt.Errorf("%w in %s: each of its addresses has a holder", ErrFull, p.subnet)
			}
		case used:
			return Allocation{}, &TakenError{addr, holder}
		}
		out.Addresses = append(out.Addresses, netip.PrefixFrom(addr, p.subnet.Bits()))
		out.New = append(out.New, addr)
	}
	return out, nil
}

// pool is a range of host-local: the addresses of a subnet from first to last, without the gateway.
type pool struct {
	subnet      netip.Prefix
	first, last netip.Addr
	// wanted is the address that is asked for, or invalid.
	wanted netip.Addr
}

func poolsOf(subnets []netip.Prefix, wanted []netip.Addr) ([]pool, error) {
	if len(subnets) == 0 {
		return nil, errors.New("no subnet to take an address of")
	}
	var out []pool
	for _, s := range subnets {
		s = s.Masked()
		if !s.IsValid() || s.Bits() > s.Addr().BitLen()-2 {
			return nil, fmt.Errorf("subnet %s is too small to have an address for a pod", s)
		}
		if slices.ContainsFunc(out, func(p pool) bool { return p.subnet.Overlaps(s) }) {
			return nil, fmt.Errorf("subnet %s overlaps another one", s)
		}
		out = append(out, pool{subnet: s, first: s.Addr().Next(), last: lastOf(s)})
	}
	for _, a := range wanted {
		a = a.Unmap()
		i := slices.IndexFunc(out, func(p pool) bool { return p.subnet.Contains(a) })
		switch {
		case i < 0:
			return nil, fmt.Errorf("address %s is in none of the node's subnets %s", a, subnets)
		case a == Gateway(out[i].subnet):
			return nil, fmt.Errorf("address %s is the gateway of subnet %s", a, out[i].subnet)
		case a.Less(out[i].first) || out[i].last.Less(a):
			return nil, fmt.Errorf("address %s is no pod's: subnet %s has its own name or broadcast there", a,
				out[i].subnet)
		case out[i].wanted.IsValid() && out[i].wanted != a:
			return nil, fmt.Errorf("%s and %s are both wanted of subnet %s, which gives a pod one address",
				out[i].wanted, a, out[i].subnet)
		}
		out[i].wanted = a
	}
	return out, nil
}

// lastOf returns the last address that host-local gives: IPv4 has the broadcast address behind it.
func lastOf(s netip.Prefix) netip.Addr {
	b := s.Addr().AsSlice()
	for i := s.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	if a.Is4() {
		a = a.Prev()
	}
	return a
}

// next returns the first address after last that is not used, round and round; the zero Addr if there is
// none. It ends after as many steps as there are used addresses, and a few.
func (p pool) next(last netip.Addr, used map[netip.Addr]Holder) netip.Addr {
	a := p.first
	if last.IsValid() && p.subnet.Contains(last) && last.Less(p.last) && !last.Less(p.first) {
		a = last.Next()
	}
	for begin := a; ; {
		if _, taken := used[a]; !taken && a != Gateway(p.subnet) {
			return a
		}
		if a = a.Next(); p.last.Less(a) || !a.IsValid() {
			a = p.first
		}
		if a == begin {
			return netip.Addr{}
		}
	}
}
