package kernel

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// IPIPName is the name of the kernel's ipip device, which is flannel's.
const IPIPName = "flannel.ipip"

// TUNPrefix begins the names of the udp backend's TUN, and a number ends them: flannel0 is the first.
const TUNPrefix = "flannel"

// IsTUNName reports whether name is one that the udp backend gives to its TUN.
func IsTUNName(name string) bool {
	number, ok := strings.CutPrefix(name, TUNPrefix)
	_, err := strconv.ParseUint(number, 10, 32)
	return ok && err == nil
}

// VTEPName returns the name of the vxlan device of a family, which is flannel's.
func VTEPName(six bool, vni uint32) string {
	if six {
		return fmt.Sprintf("flannel-v6.%d", vni)
	}
	return fmt.Sprintf("flannel.%d", vni)
}

// IsVTEPName reports whether name is one that VTEPName returns.
func IsVTEPName(name string) bool {
	ok, _ := regexp.MatchString(`^flannel(-v6)?\.[0-9]+$`, name) // the pattern is constant
	return ok
}

// WireGuardName returns the name of the device of type wireguard, which is flannel's: six is the one for IPv6
// alone, where there are two.
func WireGuardName(six bool) string {
	if six {
		return "flannel-wg-v6"
	}
	return "flannel-wg"
}

// IsWireGuardName reports whether name is one that WireGuardName returns.
func IsWireGuardName(name string) bool {
	return name == WireGuardName(false) || name == WireGuardName(true)
}
