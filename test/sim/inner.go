package sim

import (
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// packets are n UDP packets of a flow, each with its number.
func packets(src, dst netip.Addr, flow uint16, n int) []datagram {
	from, to := net.IP(src.AsSlice()), net.IP(dst.AsSlice())
	fix := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	var ds []datagram
	for i := range n {
		udp := &layers.UDP{SrcPort: layers.UDPPort(flow), DstPort: 9}
		var ip gopacket.SerializableLayer
		if src.Is6() {
			l := &layers.IPv6{Version: 6, HopLimit: 63, NextHeader: layers.IPProtocolUDP, SrcIP: from, DstIP: to}
			_ = udp.SetNetworkLayerForChecksum(l)
			ip = l
		} else {
			l := &layers.IPv4{Version: 4, TTL: 63, Protocol: layers.IPProtocolUDP, SrcIP: from, DstIP: to}
			_ = udp.SetNetworkLayerForChecksum(l)
			ip = l
		}
		b := gopacket.NewSerializeBuffer()
		_ = gopacket.SerializeLayers(b, fix, ip, udp, gopacket.Payload{byte(i), 0, 0, 0})
		ds = append(ds, datagram{data: b.Bytes()})
	}
	return ds
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
