package show

import (
	"fmt"
	"strings"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
	"weft/tunnel"
)

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
	case tunnel.OutletRuns.String():
		s += "in " + o.Outlet
	case tunnel.OutletCut.String():
		s += o.Outlet + ", each datagram by a send of its own"
	default:
		s += o.Outlet
	}
	return s + ": " + o.Because
}
