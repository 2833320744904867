package kernel

import (
	"errors"
	"fmt"
)

// The settings of our device in both families.
const (
	// acceptLocal lets our own ICMP errors in: they come out of the device with its own
	// address as source, which the kernel drops as a martian otherwise, and no sender would
	// ever learn of a smaller MTU or a missing route. IPv6 has no such check. From the overlay
	// itself no such source comes this far: the data plane refuses it.
	acceptLocal = "accept_local"
	// ignoreLinkDown would, where the host's default is on, take our routes out of use
	// while no process holds the device, and packets for the overlay would leak to the
	// default route. The kernel looks at the link's own setting alone.
	ignoreLinkDown = "ignore_routes_with_linkdown"
)

// settingError is a setting of our device that could not be made.
type settingError struct {
	name, value string
	err         error
}

func (e *settingError) Error() string { return fmt.Sprintf("set %s to %s: %v", e.name, e.value, e.err) }
func (e *settingError) Unwrap() error { return e.err }

// SettingNotes says, for each *settingError that err joins, what is lost on the device
// by that, and what helps. It is silent about those without which the overlay works the same.
func SettingNotes(device string, err error) []string {
	var notes []string
	for _, e := range Joined(err) {
		var s *settingError
		if !errors.As(e, &s) {
			continue
		}
		switch s.name {
		case acceptLocal:
			notes = append(notes, fmt.Sprintf("senders on this host get no ICMPv4 errors of the overlay, so they do not learn of a smaller path MTU or a missing route: %v. "+
				"Make /proc/sys writable for weftd, or set net.ipv4.conf.%s.accept_local=1 from outside, or net.ipv4.conf.default.accept_local=1 before weftd first starts (docker run --sysctl)", s, device))
		case ignoreLinkDown:
			notes = append(notes, fmt.Sprintf("while weftd is stopped, packets for the overlay go to the default route: %v. "+
				"Make /proc/sys writable for weftd, or set it from outside", s))
		}
	}
	return notes
}

// Joined takes apart what errors.Join joined.
func Joined(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}
