package routing

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// devicePrefix and a number are the names of the udp backend's TUN: flannel0 first.
const devicePrefix = "flannel"

// isDeviceName reports whether name is one that the udp backend gives to its TUN.
func isDeviceName(name string) bool {
	number, ok := strings.CutPrefix(name, devicePrefix)
	_, err := strconv.ParseUint(number, 10, 32)
	return ok && err == nil
}

// vtepName is the device's name in a family, flannel's.
func vtepName(six bool, vni uint32) string {
	if six {
		return fmt.Sprintf("flannel-v6.%d", vni)
	}
	return fmt.Sprintf("flannel.%d", vni)
}

// isVTEPName reports whether name is one that vtepName gives.
func isVTEPName(name string) bool {
	ok, _ := regexp.MatchString(`^flannel(-v6)?\.[0-9]+$`, name) // the pattern is constant
	return ok
}
