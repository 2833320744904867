package kernel

import (
	"errors"
	"fmt"
	"strings"
)

// The settings of our device in both families.
const (
	// acceptLocal lets our own ICMP errors in. They come out of the device with its own
	// address as source; without the setting the kernel drops them as martians, and no sender
	// would ever learn of a smaller MTU or a missing route. IPv6 has no such check. A packet
	// from the overlay with such a source does not get here, since the data plane refuses it.
	acceptLocal = "accept_local"
	// ignoreLinkDown is switched off: where the host's default is on, our routes would be out
	// of use while no process holds the device, and packets for the overlay would leave by the
	// default route. The kernel reads the link's own setting alone.
	ignoreLinkDown = "ignore_routes_with_linkdown"
)

// settingError is a setting of our device that could not be made.
type settingError struct {
	name, value string
	err         error
}

func (e *settingError) Error() string { return fmt.Sprintf("set %s to %s: %v", e.name, e.value, e.err) }
func (e *settingError) Unwrap() error { return e.err }

// SettingNotes says, for each *settingError that err joins, what does not work on the device
// without the setting, and what helps. It says nothing of a setting that the overlay can do without.
func SettingNotes(device string, err error) []string {
	var notes []string
	for _, e := range Joined(err) {
		var s *settingError
		if !errors.As(e, &s) {
			continue
		}
		switch s.name {
		case acceptLocal:
			notes = append(notes, fmt.Sprintf("senders on this host get no ICMPv4 errors of the overlay, so they do "+
				"not learn of a smaller path MTU or a missing route: %v. "+
				"Make /proc/sys writable for weftd, or set net.ipv4.conf.%s.accept_local=1 from outside, or "+
				"net.ipv4.conf.default.accept_local=1 before weftd first starts (docker run --sysctl)", s,
				strings.ReplaceAll(device, ".", "/")))
		case ignoreLinkDown:
			notes = append(notes, fmt.Sprintf("while weftd is stopped, packets for the overlay go to the default "+
				"route: %v. "+
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
