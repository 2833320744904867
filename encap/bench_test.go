package encap

import (
	"fmt"
	"testing"
)

func family(six bool) string {
	if six {
		return "6"
	}
	return "4"
}

// Sizes of a pure ACK, of a full segment, and of a superpacket.
func sizes() []int { return []int{64, 1450, 65000} }

func BenchmarkChecksum(b *testing.B) {
	for _, size := range []int{20, 64, 1450, 9000, 65000} {
		data := make([]byte, size)
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				Checksum(data)
			}
		})
	}
}

// The floor under BenchmarkChecksum: what it costs to touch the bytes at all.
func BenchmarkCopy(b *testing.B) {
	for _, size := range sizes() {
		src, dst := make([]byte, size), make([]byte, size)
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				copy(dst, src)
			}
		})
	}
}

func BenchmarkParseInner(b *testing.B) {
	for _, six := range []bool{false, true} {
		pkt := transport(six, ProtoTCP, 1400, true)
		b.Run("ip="+family(six), func(b *testing.B) {
			b.SetBytes(int64(len(pkt)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseInner(pkt); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPartialChecksum(b *testing.B) {
	for _, six := range []bool{false, true} {
		for _, partial := range []bool{false, true} {
			pkt := transport(six, ProtoTCP, 1400, !partial)
			in, err := ParseInner(pkt)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("ip=%s/partial=%t", family(six), partial), func(b *testing.B) {
				b.SetBytes(int64(len(pkt)))
				b.ReportAllocs()
				for b.Loop() {
					if _, _, got := PartialChecksum(pkt, in); got != partial {
						b.Fatal(got)
					}
				}
			})
		}
	}
}

func BenchmarkFinishChecksum(b *testing.B) {
	for _, size := range sizes() {
		pkt := transport(false, ProtoTCP, size-40, false)
		b.Run(fmt.Sprintf("proto=tcp/size=%d", size), func(b *testing.B) {
			b.SetBytes(int64(len(pkt)))
			b.ReportAllocs()
			for b.Loop() {
				FinishChecksum(pkt, 20, ChecksumOffsetTCP)
			}
		})
	}
}

func BenchmarkRewrite(b *testing.B) {
	for _, six := range []bool{false, true} {
		pkt := transport(six, ProtoTCP, 1400, true)
		ttl := 8
		if six {
			ttl = 7
		}
		b.Run("what=ttl/ip="+family(six), func(b *testing.B) {
			b.SetBytes(int64(len(pkt)))
			b.ReportAllocs()
			for b.Loop() {
				pkt[ttl] = 64 // the checksum stays consistent with nothing, which costs the same
				DecrementTTL(pkt)
			}
		})
		b.Run("what=ecn/ip="+family(six), func(b *testing.B) {
			b.SetBytes(int64(len(pkt)))
			b.ReportAllocs()
			for e := ECN(0); b.Loop(); e++ {
				SetECN(pkt, e)
			}
		})
	}
}

func BenchmarkEncap(b *testing.B) {
	for _, f := range []Format{FormatIP, FormatVXLAN} {
		for _, o := range []Outer{outer4(), outer6()} {
			buf := make([]byte, MaxOverhead+1450)
			off := MaxOverhead
			if f == FormatVXLAN {
				off -= VXLANOverhead
			}
			v := VXLAN{VNI: 1}
			b.Run(fmt.Sprintf("proto=%v/outer=%s", f, family(o.Dst.Addr().Is6())), func(b *testing.B) {
				b.SetBytes(1450)
				b.ReportAllocs()
				for b.Loop() {
					if f == FormatVXLAN {
						_, _ = AppendVXLAN(buf[off:off], v)
					}
					at := off - o.headerLen()
					if _, err := AppendOuter(buf[at:at], o, len(buf)-off); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkDecap(b *testing.B) {
	for name, pkt := range kernelPackets(b) {
		if name != "vxlan-v4-tcp-syn" && name != "vxlan-v6-udp" {
			continue
		}
		_, payload, err := parseOuter(pkt)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("proto=vxlan/packet="+name, func(b *testing.B) {
			b.SetBytes(int64(len(pkt) - 50))
			b.ReportAllocs()
			for b.Loop() {
				_, inner, err := ParseVXLAN(payload)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := ParseInner(inner); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendICMPError(b *testing.B) {
	for _, six := range []bool{false, true} {
		src, pkt, dst := ip("10.1.1.1"), transport(six, ProtoTCP, 1400, true), make([]byte, 0, 2000)
		if six {
			src = ip("2001:db8::1")
		}
		b.Run("ip="+family(six), func(b *testing.B) {
			b.SetBytes(int64(len(pkt)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := AppendICMPError(dst, ICMPTooBig, src, 1400, pkt); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFragment4(b *testing.B) {
	for _, mtu := range []int{576, 1400} {
		pkt, buf := packet(false, ProtoUDP, make([]byte, 9000-20)), make([]byte, 0, 2000)
		b.Run(fmt.Sprintf("size=9000/mtu=%d", mtu), func(b *testing.B) {
			b.SetBytes(int64(len(pkt)))
			b.ReportAllocs()
			for b.Loop() {
				for off, more := 0, true; more; more = off != 0 {
					var err error
					if _, off, err = Fragment4(buf, pkt, mtu, off); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
