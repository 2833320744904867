package main

import (
	"fmt"
	"strings"

	"weft/cmd/internal/control"
	"weft/tunnel"
)

// deviceLines are what the underlay's devices do for datagrams, and how superpackets leave by them.
func deviceLines(s control.Status) (l []string) {
	for _, d := range s.Underlay.Devices {
		l = append(l, d.Name+": "+orDash(strings.Join(d.Features, " ")))
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
	s += ": " + o.Because
	switch {
	case !o.Measured:
	case o.Trials == 0:
		s += "; not measured yet"
	default:
		s += fmt.Sprintf("; measured %s, last %.3f ns a byte whole and %.3f in runs; %s", times(o.Trials), o.Whole, o.Runs, changed(o.Changes))
	}
	return s
}

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func changed(n uint64) string {
	if n == 0 {
		return "never changed"
	}
	return "changed " + times(n)
}
