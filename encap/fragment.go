package encap

import (
	"encoding/binary"
	"fmt"
)

// Errors of Fragment4, preallocated.
var (
	errFragIPv6    = fmt.Errorf("ipv6 packet is not fragmented by routers: %w", ErrNotEligible)
	errFragDF      = fmt.Errorf("packet has DF set: %w", ErrNotEligible)
	errFragMTU     = fmt.Errorf("mtu below ip header and 8 bytes: %w", ErrNotEligible)
	errFragOffset  = fmt.Errorf("fragment offset not one that was returned: %w", ErrMalformed)
	errFragOptions = fmt.Errorf("ipv4 options run past the header: %w", ErrMalformed)
)

// Fragment4 appends to dst the fragment of the IPv4 packet pkt that has the data from offset on and fits mtu
// bytes (RFC 791 §3.2). offset counts from the end of pkt's header. It is 0 in the first call, and the next
// of the previous call in the others. next is 0 after the last fragment. A packet that fits is appended
// whole.
//
//	for off, more := 0, true; more; more = off != 0 {
//		frag, off, err = Fragment4(buf[:0], pkt, mtu, off)
//		…
//	}
//
// The first fragment has all options, and the others have those with the copy bit. pkt may be a fragment
// itself. Its transport checksum must be complete, because it cannot be completed in a fragment. pkt must not
// overlap the free space of dst.
//
// The error wraps ErrNotEligible if pkt is IPv6, if it does not fit and has DF set, or if mtu is less than
// its header plus 8 bytes. It wraps ErrShort or ErrMalformed if pkt or its options are invalid, and
// ErrMalformed if no call returned that offset. After the first call only the last can happen. With an error,
// dst is returned unchanged.
func Fragment4(dst, pkt []byte, mtu, offset int) (frag []byte, next int, err error) {
	in, err := ParseInner(pkt)
	if err != nil {
		return dst, 0, err
	}
	data := pkt[in.HeaderLen:in.TotalLen]
	switch {
	case in.Version != 4:
		return dst, 0, errFragIPv6
	case in.TotalLen <= mtu && offset == 0:
		return append(dst, pkt[:in.TotalLen]...), 0, nil
	case in.DF:
		return dst, 0, errFragDF
	case mtu < in.HeaderLen+8:
		return dst, 0, errFragMTU
	case offset < 0 || offset%8 != 0 || offset != 0 && offset >= len(data):
		return dst, 0, errFragOffset
	}
	at := len(dst)
	dst, ok := appendFragHeader(dst, pkt[:in.HeaderLen], offset != 0)
	if !ok {
		return dst[:at], 0, errFragOptions
	}
	hlen := len(dst) - at
	field := uint16(in.FragOffset+offset) / 8
	if room := mtu - hlen; len(data)-offset > room { // not the last: a multiple of 8
		next = offset + room&^7
		data = data[offset:next]
		field |= flagMF
	} else {
		data = data[offset:]
		if in.MoreFragments {
			field |= flagMF
		}
	}
	h := dst[at:]
	binary.BigEndian.PutUint16(h[2:], uint16(hlen+len(data)))
	binary.BigEndian.PutUint16(h[6:], field)
	binary.BigEndian.PutUint16(h[10:], Checksum(h))
	return append(dst, data...), next, nil
}

// appendFragHeader appends the header h with checksum 0. It keeps all options, or with later only those that
// every fragment has. ok is false if the options are invalid; dst may then have grown.
func appendFragHeader(dst, h []byte, later bool) (_ []byte, ok bool) {
	at := len(dst)
	dst = append(dst, h[:IPv4Len]...)
	for opts := h[IPv4Len:]; len(opts) > 0 && opts[0] != 0; {
		n := 1 // no operation
		if opts[0] != 1 {
			if len(opts) < 2 || opts[1] < 2 || int(opts[1]) > len(opts) {
				return dst, false
			}
			n = int(opts[1])
			if later && opts[0]&0x80 != 0 { // the copy bit
				dst = append(dst, opts[:n]...)
			}
		}
		opts = opts[n:]
	}
	if !later {
		dst = append(dst, h[IPv4Len:]...)
	}
	for (len(dst)-at)%4 != 0 {
		dst = append(dst, 0) // end of options
	}
	dst[at] = 4<<4 | byte((len(dst)-at)/4)
	dst[at+10], dst[at+11] = 0, 0
	return dst, true
}
