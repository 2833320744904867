package encap

import "testing"

// No function of the hot path allocates, whatever hostile bytes it is given.
func TestNoAllocations(t *testing.T) {
	dst := make([]byte, 0, 4096)
	tcp4, tcp6 := transport(false, ProtoTCP, 1400, false), transport(true, ProtoTCP, 1400, false)
	chain := tcp6
	for range 6 {
		chain = extension(chain, protoDestOpts, []byte{0, 0, 1, 4, 0, 0, 0, 0})
	}
	in4, _ := ParseInner(tcp4)
	in6, _ := ParseInner(tcp6)
	o4, o6 := outer4(), outer6()
	framed, err := AppendVXLAN(nil, VXLAN{VNI: 1})
	if err != nil {
		t.Fatal(err)
	}
	src4, src6 := ip("10.1.1.1"), ip("2001:db8::1")
	opts := options(packet(false, ProtoUDP, make([]byte, 2000)), optMixed)
	broken := options(packet(false, ProtoUDP, make([]byte, 2000)), []byte{0x94, 9, 0, 0})

	tm4, e4, f4 := template(t, false)
	tm6, e6, f6 := template(t, true)
	frame4, frame6 := slowFrame(t, e4, f4, 100, true), slowFrame(t, e6, f6, 100, true)

	for name, f := range map[string]func(){
		"ParseInner4":          func() { _, _ = ParseInner(tcp4) },
		"ParseInner6":          func() { _, _ = ParseInner(tcp6) },
		"ParseInner6 chain":    func() { _, _ = ParseInner(chain) },
		"ParseInner short":     func() { _, _ = ParseInner(tcp6[:50]) },
		"ParseInner malformed": func() { _, _ = ParseInner(dst[:40:40]) },
		"Checksum":             func() { Checksum(tcp4) },
		"PseudoHeaderSum4":     func() { PseudoHeaderSum(in4.Src, in4.Dst, ProtoTCP, 9) },
		"PseudoHeaderSum6":     func() { PseudoHeaderSum(in6.Src, in6.Dst, ProtoTCP, 9) },
		"PseudoHeaderSumRaw":   func() { PseudoHeaderSumRaw(tcp6[8:40], ProtoTCP, 9) },
		"Update16":             func() { _ = Update16(1, 2, 3) },
		"ECN": func() {
			SetECN(tcp4, ECN(tcp4[1]+1))
			SetECN(tcp6, in6.ECN())
			_,
				_ = DecapECN(CE, NotECT)
		},
		"DecrementTTL":          func() { tcp4[8], tcp6[7] = 64, 64; DecrementTTL(tcp4); DecrementTTL(tcp6) },
		"Martian":               func() { MartianSource(in4.Src); MartianDestination(in6.Dst) },
		"PartialChecksum":       func() { PartialChecksum(tcp4, in4); PartialChecksum(tcp6, in6) },
		"FinishChecksum":        func() { FinishChecksum(tcp4, 20, ChecksumOffsetTCP) },
		"ChecksumOK":            func() { ChecksumOK(tcp4, in4); ChecksumOK(tcp6, in6) },
		"AppendOuter":           func() { _, _ = AppendOuter(dst, o4, 9); _, _ = AppendOuter(dst, o6, 9) },
		"AppendOuter too long":  func() { _, _ = AppendOuter(dst, o4, 1<<20) },
		"AppendVXLAN":           func() { _, _ = AppendVXLAN(dst, VXLAN{VNI: 7}) },
		"ParseVXLAN":            func() { _, _, _ = ParseVXLAN(framed) },
		"AppendICMPError":       func() { _, _ = AppendICMPError(dst, ICMPTooBig, src4, 1400, tcp4) },
		"AppendICMPError6":      func() { _, _ = AppendICMPError(dst, ICMPNoRoute, src6, 0, tcp6) },
		"AppendICMPError error": func() { _, _ = AppendICMPError(dst, 0, src6, 0, tcp4) },
		"Fragment4": func() {
			_, n, _ := Fragment4(dst, opts, 576, 0)
			_, _,
				_ = Fragment4(dst, opts, 576, n)
		},
		"Fragment4 malformed": func() { _, _, _ = Fragment4(dst, broken, 576, 0) },
		"NewFrameTemplate":    func() { _, _ = NewFrameTemplate(e6.Src, e6.Dst, f6.Src, f6.Dst) },
		"FrameTemplate.Put":   func() { tm4.Put(dst[:42], 9, CE, 7, true); tm6.Put(dst[:62], 9, CE, 7, false) },
		"ParseFrame":          func() { _, _ = ParseFrame(frame4); _, _ = ParseFrame(frame6) },
		"ParseFrame malformed": func() {
			_, _ = ParseFrame(tcp4)
			_, _ = ParseFrame(frame4[:60])
			_,
				_ = ParseFrame(frame6[:61])
		},
		"PutTunnel": func() { VNetHdr{}.PutTunnel(dst[:24], 54, 62) },
		"NextPacked": func() {
			_, _ = NextPacked(tcp4, 1440)
			_, _ = NextPacked(tcp4, 0)
			_,
				_ = NextPacked(tcp4, 9999)
		},
		"Padding": func() { _ = Padding(1400) },
		"FlowPairHash": func() {
			FlowPairHash(tcp4, in4)
			FlowPairHash(tcp6, in6)
			FlowPairHash(nil, in6)
		},
		"InnerMTU": func() { InnerMTU(FormatVXLAN, 1500, true) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
