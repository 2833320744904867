// Package nlattr reads the attributes of netlink messages without copying them.
package nlattr

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// typeMask is NLA_TYPE_MASK of linux/netlink.h. The two upper bits are flags.
const typeMask = 1<<14 - 1

// Each calls f with the type and value of each attribute in b. It stops when f returns false or an attribute
// has an invalid length. The values are slices of b.
func Each(b []byte, f func(kind uint16, value []byte) bool) {
	for len(b) >= unix.SizeofRtAttr {
		length := int(binary.NativeEndian.Uint16(b))
		if length < unix.SizeofRtAttr || length > len(b) {
			return
		}
		if !f(binary.NativeEndian.Uint16(b[2:])&typeMask, b[unix.SizeofRtAttr:length]) {
			return
		}
		b = b[min(len(b), (length+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
	}
}

// Find returns the value of the first attribute of that kind, a slice of b, or nil.
func Find(b []byte, kind uint16) (value []byte) {
	Each(b, func(k uint16, v []byte) bool {
		if k == kind {
			value = v
		}
		return k != kind
	})
	return value
}
