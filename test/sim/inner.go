package sim

import (
	"encoding/json"
	"net"
	"net/netip"

	"weft/lease"
)

// packets are n UDP packets of a flow, each with its number.
func packets(src, dst netip.Addr, flow uint16, n int) []datagram {
	var ds []datagram
	for i := range n {
		var b []byte
		if src.Is6() {
			b = make([]byte, 40+8+4)
			b[0], b[5], b[6], b[7] = 0x60, 8+4, 17, 63
			copy(b[8:], src.AsSlice())
			copy(b[24:], dst.AsSlice())
		} else {
			b = make([]byte, 20+8+4)
			b[0], b[3], b[8], b[9] = 0x45, byte(len(b)), 63, 17
			copy(b[12:], src.AsSlice())
			copy(b[16:], dst.AsSlice())
			sum := uint32(0)
			for k := 0; k < 20; k += 2 {
				sum += uint32(b[k])<<8 | uint32(b[k+1])
			}
			sum = sum>>16 + sum&0xffff
			sum += sum >> 16
			b[10], b[11] = ^byte(sum>>8), ^byte(sum)
		}
		udp := b[len(b)-12:]
		udp[0], udp[1], udp[3], udp[5] = byte(flow>>8), byte(flow), 9, 12
		udp[8] = byte(i)
		if src.Is6() { // where a checksum is required
			sum := uint32(17 + 12)
			for k := 8; k < len(b); k += 2 {
				sum += uint32(b[k])<<8 | uint32(b[k+1])
			}
			sum = sum>>16 + sum&0xffff
			sum += sum >> 16
			udp[6], udp[7] = ^byte(sum>>8), ^byte(sum)
		}
		ds = append(ds, datagram{data: b})
	}
	return ds
}

// frameLen is what stands before a packet in format vxlan: its header, and an Ethernet header.
const frameLen = 8 + 14

// vxlanHeader is what stands before an IPv4 packet from one node to another.
func vxlanHeader(from, to lease.Record) []byte {
	b := make([]byte, frameLen)
	b[0] = 8
	for at, data := range map[int]json.RawMessage{8: to.BackendData, 14: from.BackendData} {
		var v struct {
			VNI     int
			VtepMAC string
		}
		_ = json.Unmarshal(data, &v) // what is none gives a header that nobody takes
		mac, _ := net.ParseMAC(v.VtepMAC)
		copy(b[at:at+6], mac)
		if at == 8 {
			b[6] = byte(v.VNI)
		}
	}
	b[20] = 8
	return b
}

// bare is the packet of a datagram.
func (c *Cluster) bare(b []byte) []byte {
	if c.script.VXLAN && len(b) > frameLen {
		return b[frameLen:]
	}
	return b
}

func source(b []byte) netip.Addr {
	if b[0]>>4 == 6 {
		return netip.AddrFrom16([16]byte(b[8:24]))
	}
	return netip.AddrFrom4([4]byte(b[12:16]))
}

func destination(b []byte) netip.Addr {
	if b[0]>>4 == 6 {
		return netip.AddrFrom16([16]byte(b[24:40]))
	}
	return netip.AddrFrom4([4]byte(b[16:20]))
}

func number(b []byte) int { return int(b[len(b)-4]) }
