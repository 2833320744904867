package kernel

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// Counters are what the kernel counted for a device since that was made, or its driver's counters began.
type Counters struct {
	TxPackets uint64 `json:"txPackets"`
	TxBytes   uint64 `json:"txBytes"`
	TxDropped uint64 `json:"txDropped"`
	TxErrors  uint64 `json:"txErrors"`
	RxPackets uint64 `json:"rxPackets"`
	RxBytes   uint64 `json:"rxBytes"`
	RxDropped uint64 `json:"rxDropped"`
	RxErrors  uint64 `json:"rxErrors"`
}

// ReadCounters reads those of a device by name, in the calling thread's network namespace. It needs no
// Kernel, so that it waits for nobody who has one.
func ReadCounters(device string) (c Counters, err error) {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return c, fmt.Errorf("link %s: %w", device, err)
	}
	s := l.Attrs().Statistics
	if s == nil {
		return c, fmt.Errorf("link %s: the kernel sent no counters", device)
	}
	return Counters{
		TxPackets: s.TxPackets, TxBytes: s.TxBytes, TxDropped: s.TxDropped, TxErrors: s.TxErrors,
		RxPackets: s.RxPackets, RxBytes: s.RxBytes, RxDropped: s.RxDropped, RxErrors: s.RxErrors,
	}, nil
}
