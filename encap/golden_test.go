package encap

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// kernelPackets reads testdata/kernel.txt.
func kernelPackets(t testing.TB) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/kernel.txt")
	if err != nil {
		t.Fatal(err)
	}
	all, name := map[string][]byte{}, ""
	for line := range strings.Lines(string(text)) {
		switch {
		case line[0] == '#':
		case line[0] != ' ':
			name = strings.TrimSpace(line)
		default:
			b, err := hex.DecodeString(strings.TrimSpace(line))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			all[name] = append(all[name], b...)
		}
	}
	if len(all) == 0 {
		t.Fatal("testdata/kernel.txt has no packets")
	}
	return all
}

// unhex takes bytes as hexadecimal digits with blanks.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// slowSum is RFC 1071 to the letter, two bytes at a time.
func slowSum(b []byte, initial uint64) uint16 {
	sum := initial
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	for i := 0; i < len(b); i += 2 {
		word := uint64(b[i]) << 8
		if i+1 < len(b) {
			word |= uint64(b[i+1])
		}
		sum += word
		for sum > 0xffff {
			sum = sum&0xffff + sum>>16
		}
	}
	return uint16(sum)
}

// slowTransportOK verifies a TCP or UDP checksum from the headers up.
func slowTransportOK(pkt []byte, l4 int, proto uint8) bool {
	var pseudo []byte
	if pkt[0]>>4 == 4 {
		pseudo = append(pseudo, pkt[12:20]...)
		pseudo = append(pseudo, 0, proto)
		pseudo = binary.BigEndian.AppendUint16(pseudo, uint16(len(pkt)-l4))
	} else {
		pseudo = append(pseudo, pkt[8:40]...)
		pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(pkt)-l4))
		pseudo = append(pseudo, 0, 0, 0, proto)
	}
	return slowSum(append(pseudo, pkt[l4:]...), 0) == 0xffff
}

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

// packet makes an IP packet between two documentation addresses. The bytes of
// data are its payload; for TCP and UDP transport adds a header before.
func packet(six bool, proto uint8, data []byte) []byte {
	h := header{src: ip("10.1.1.2"), dst: ip("10.1.2.2"), ttl: 64, proto: proto, id: 7, payloadLen: len(data)}
	if six {
		h.src, h.dst = ip("2001:db8:1::2"), ip("2001:db8:2::2")
	}
	return append(h.appendTo(nil), data...)
}

// transport makes a packet with a TCP or UDP header and n bytes behind it, its
// checksum complete if complete is true, else the folded pseudo-header sum.
func transport(six bool, proto uint8, n int, complete bool) []byte {
	l4 := make([]byte, 20+n)
	offset := ChecksumOffsetTCP
	if proto == ProtoUDP {
		l4, offset = l4[:UDPLen+n], ChecksumOffsetUDP
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
	} else {
		l4[12] = 5 << 4
	}
	binary.BigEndian.PutUint16(l4[0:], 4000)
	binary.BigEndian.PutUint16(l4[2:], 5000)
	for i := len(l4) - n; i < len(l4); i++ {
		l4[i] = byte(i * 7)
	}
	b := packet(six, proto, l4)
	start := len(b) - len(l4)
	addrs := b[12:20]
	if six {
		addrs = b[8:40]
	}
	seed := slowSum(addrs, uint64(proto)+uint64(len(l4)))
	binary.BigEndian.PutUint16(b[start+offset:], seed)
	if complete {
		check := ^slowSum(b[start:], 0)
		if check == 0 {
			check = 0xffff
		}
		binary.BigEndian.PutUint16(b[start+offset:], check)
	}
	return b
}

// options puts IPv4 options, a multiple of 4 bytes, into a packet.
func options(b, opts []byte) []byte {
	out := append(append([]byte{}, b[:IPv4Len]...), opts...)
	out = append(out, b[IPv4Len:]...)
	out[0] = 4<<4 | byte(5+len(opts)/4)
	binary.BigEndian.PutUint16(out[2:], uint16(len(out)))
	return fixHeader(out)
}

// extension puts an IPv6 extension header of the given type before the payload.
func extension(b []byte, kind uint8, body []byte) []byte {
	out := append(append([]byte{}, b[:IPv6Len]...), body...)
	out = append(out, b[IPv6Len:]...)
	out[IPv6Len], out[6] = out[6], kind
	binary.BigEndian.PutUint16(out[4:], uint16(len(out)-IPv6Len))
	return out
}

// fixHeader recomputes the IPv4 header checksum, slowly.
func fixHeader(b []byte) []byte {
	n := int(b[0]&0xf) * 4
	b[10], b[11] = 0, 0
	binary.BigEndian.PutUint16(b[10:], ^slowSum(b[:n], 0))
	return b
}

// testRand is seeded by the test's name, so that a failure can be replayed.
func testRand(t testing.TB) *rand.Rand {
	var seed uint64
	for _, c := range t.Name() {
		seed = seed*31 + uint64(c)
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}
