package bench

import (
	"fmt"
	"net/netip"
	"testing"

	"weft/encap"
)

// The benchmarks below are of functions of package encap that are called for every packet
// and cost a few nanoseconds each. Much of the ladder's rung loop consists of them.

// BenchmarkECN measures RFC 6040's decision and the rewriting of a header.
func BenchmarkECN(b *testing.B) {
	p := innerPacket(1472)
	b.Run("what=decap", func(b *testing.B) {
		perPacket(b, len(p))
		refused := 0
		for i := 0; b.Loop(); i++ {
			if _, ok := encap.DecapECN(encap.ECN(i&3), encap.ECN(i>>2&3)); !ok {
				refused++
			}
		}
	})
	b.Run("what=set", func(b *testing.B) {
		perPacket(b, len(p))
		for i := 0; b.Loop(); i++ {
			encap.SetECN(p, encap.ECN(i&3))
		}
	})
}

// BenchmarkVNetHdr measures the header that stands before every packet of a TUN with offloads.
func BenchmarkVNetHdr(b *testing.B) {
	h := encap.VNetHdr{Flags: encap.VNetNeedsCsum, GSOType: encap.VNetGSOTCPv4, HdrLen: 40, GSOSize: 1400,
		CsumStart: 20, CsumOffset: 16}
	raw := make([]byte, encap.VNetHdrLen)
	b.Run("what=put", func(b *testing.B) {
		perPacket(b, 1472)
		for b.Loop() {
			h.Put(raw)
		}
	})
	b.Run("what=parse", func(b *testing.B) {
		perPacket(b, 1472)
		for b.Loop() {
			if _, err := encap.ParseVNetHdr(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkMartian classifies both addresses of a packet.
func BenchmarkMartian(b *testing.B) {
	for _, a := range []string{"10.1.2.3", "fd00:1:2::3"} {
		addr := netip.MustParseAddr(a)
		b.Run(fmt.Sprintf("ip=%d", 4+addr.BitLen()/128*2), func(b *testing.B) {
			perPacket(b, 1472)
			for b.Loop() {
				if encap.MartianSource(addr) || encap.MartianDestination(addr) {
					b.Fatal("refused")
				}
			}
		})
	}
}

// BenchmarkChecksumOK verifies a whole packet, as the receiver does before it merges.
func BenchmarkChecksumOK(b *testing.B) {
	for _, size := range sizes {
		p := innerPacket(size)
		in, err := encap.ParseInner(p)
		if err != nil {
			b.Fatal(err)
		}
		src, dst := in.Src, in.Dst
		sum := encap.Fold(encap.Sum(p[20:], encap.PseudoHeaderSum(src, dst, encap.ProtoUDP, size-20)))
		p[26], p[27] = byte(^sum>>8), byte(^sum)
		b.Run(fmt.Sprintf("proto=udp/size=%d", size), func(b *testing.B) {
			perPacket(b, size)
			for b.Loop() {
				if !encap.ChecksumOK(p, in) {
					b.Fatal("refused")
				}
			}
		})
	}
}
