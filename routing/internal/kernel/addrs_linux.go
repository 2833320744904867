package kernel

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

type AddrInfo struct {
	Index                                             int
	Addr                                              netip.Addr
	Deprecated, Tentative, Failed, Dynamic, Temporary bool
}

// ReachInfo is the kernel's answer to "how would you reach that address?".
type ReachInfo struct {
	Index int
	Src   netip.Addr
	Err   error
}

// AddrInfos lists the addresses of all links.
func (k *Kernel) AddrInfos() ([]AddrInfo, error) {
	as, err := k.addrs()
	if err != nil {
		return nil, err
	}
	var infos []AddrInfo
	for _, a := range as {
		if a.IPNet == nil {
			continue
		}
		infos = append(infos, AddrInfo{
			Index: a.LinkIndex, Addr: fromIP(a.IP),
			Deprecated: a.Flags&unix.IFA_F_DEPRECATED != 0,
			Tentative:  a.Flags&unix.IFA_F_TENTATIVE != 0 && a.Flags&unix.IFA_F_OPTIMISTIC == 0,
			Failed:     a.Flags&unix.IFA_F_DADFAILED != 0,
			Dynamic:    a.Flags&unix.IFA_F_PERMANENT == 0,
			Temporary:  a.Flags&unix.IFA_F_TEMPORARY != 0 && a.IP.To4() == nil, // the bit means "secondary" in IPv4
		})
	}
	return infos, nil
}

// Reach asks the kernel how it would reach a.
func (k *Kernel) Reach(a netip.Addr) ReachInfo {
	answers, err := k.RoutesTo([]netip.Addr{a}, netip.AddrPort{})
	switch {
	case err != nil:
		return ReachInfo{Err: err}
	case answers[0].Kind == unix.RTN_LOCAL:
		return ReachInfo{Err: errors.New("it is this host's own address")}
	}
	return ReachInfo{Index: answers[0].Link, Src: answers[0].Source, Err: answers[0].Err}
}
