package pcapfilter

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// packet4 and packet6 make packets of a protocol with two ports, or with whatever stands there.
func packet4(src, dst string, protocol byte, fragment, sport, dport uint16) []byte {
	b := make([]byte, 20, 40)
	b[0], b[8], b[9] = 0x45, 64, protocol
	binary.BigEndian.PutUint16(b[2:], 40)
	binary.BigEndian.PutUint16(b[6:], fragment)
	copy(b[12:], netip.MustParseAddr(src).AsSlice())
	copy(b[16:], netip.MustParseAddr(dst).AsSlice())
	b = binary.BigEndian.AppendUint16(b, sport)
	b = binary.BigEndian.AppendUint16(b, dport)
	return append(b, make([]byte, 16)...)
}

func packet6(src, dst string, protocol byte, sport, dport uint16) []byte {
	b := make([]byte, 40, 60)
	b[0], b[6], b[7] = 0x60, protocol, 64
	binary.BigEndian.PutUint16(b[4:], 20)
	copy(b[8:], netip.MustParseAddr(src).AsSlice())
	copy(b[24:], netip.MustParseAddr(dst).AsSlice())
	b = binary.BigEndian.AppendUint16(b, sport)
	b = binary.BigEndian.AppendUint16(b, dport)
	return append(b, make([]byte, 16)...)
}

func packets() [][]byte {
	return [][]byte{
		packet4("10.1.1.5", "10.1.2.7", 6, 0, 40000, 80),
		packet4("10.1.2.7", "10.1.1.5", 6, 0, 80, 40000),
		packet4("10.1.1.5", "10.1.2.7", 17, 0, 5353, 53),
		packet4("10.9.1.5", "10.1.2.7", 1, 0, 0x800, 0),
		packet4("10.1.1.5", "10.1.2.7", 17, 0x2000, 53, 53),      // first fragment
		packet4("10.1.1.5", "10.1.2.7", 17, 0x0005, 53, 53),      // a later one, in which these are no ports
		packet4("10.1.1.5", "10.1.2.7", 132, 0, 443, 443),        // SCTP
		packet4("10.1.1.5", "10.1.2.7", 47, 0, 80, 80),           // GRE has no ports
		packet6("fd00:1:1::5", "fd00:1:2::7", 6, 40000, 443),     //
		packet6("fd00:1:2::7", "fd00:1:1::5", 17, 53, 5353),      //
		packet6("fd00:1:1::5", "fd00:9::7", 58, 0x8000, 0),       // ICMPv6
		packet6("fd00:1:1::5", "fd00:1:2::7", 44, 0x0600, 0x050), // a fragment header is not followed
		packet4("10.1.1.5", "10.1.2.7", 6, 0, 40000, 80)[:21],    // cut behind the IP header
		packet6("fd00:1:1::5", "fd00:1:2::7", 6, 1, 2)[:20],      // cut in the addresses
	}
}

// filters have pcap's meaning, which TestFiltersMeanWhatPcapsDo compares.
func filters() []string {
	return []string{
		"ip", "ip6", "tcp", "udp", "icmp", "icmp6", "sctp", "host 10.1.1.5", "src host 10.1.1.5", "dst 10.1.1.5",
		"src or dst host 10.9.1.5", "src and dst net 10.1.0.0/16", "net 10.1.0.0/16", "dst net 10.1.2.0/24",
		"net fd00:1::/32",
		"host fd00:9::7", "port 80", "port 80 or 443", "tcp port 80", "udp src port 53", "udp dst port 53",
		"portrange 50-100",
		"src and dst port 53", "ip proto 47", "ip6 proto 58", "ip proto 6", "not port 53", "! tcp",
		"tcp or udp and port 53", "tcp or (udp and port 53)", "udp and not (src port 53 or host 10.1.2.7)",
		"less 40", "greater 41",
		"net 0.0.0.0/0", "tcp and src 10.1.1.5 and dst 10.1.2.7", "ip && tcp || ip6",
		"src net 10.1.0.0/16 or fd00::/16",
	}
}

// TestFiltersMeanWhatPcapsDo compares with tcpdump, packet by packet.
func TestFiltersMeanWhatPcapsDo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "in.pcap")
	var in bytes.Buffer
	w := pcapgo.NewWriter(&in)
	if err := w.WriteFileHeader(65535, layers.LinkTypeRaw); err != nil {
		t.Fatal(err)
	}
	all := packets()
	for i, p := range all { // the time is the packet's number
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(int64(i+1), 0), CaptureLength: len(p),
			Length: len(p)}, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, in.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range filters() {
		f, err := Compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		out, err := exec.Command("tcpdump", "-r", file, "-w", "-", "-Z", "root", text).Output()
		if err != nil {
			t.Fatalf("tcpdump (Debian's tcpdump) does not run %q: %v", text, err)
		}
		r, err := pcapgo.NewReader(bytes.NewReader(out))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		theirs := make([]bool, len(all))
		for _, ci, err := r.ReadPacketData(); err == nil; _, ci, err = r.ReadPacketData() {
			theirs[ci.Timestamp.Unix()-1] = true
		}
		ours := make([]bool, len(all))
		for i, p := range all {
			ours[i] = f.Match(p)
		}
		if !slices.Equal(ours, theirs) {
			t.Errorf("%s:\nours   %v\ntheirs %v", text, ours, theirs)
		}
	}
}

func TestErrorsNameTheWord(t *testing.T) {
	for text, want := range map[string]string{
		"hots 10.1.1.5":                        "known",
		"host web":                             "address",
		"host":                                 "missing",
		"host 10.1.0.0/16":                     "10.1.0.0/16",
		"net 10.1.2.0/16":                      "10.1.0.0/16",
		"net 10.1":                             "10.1.0.0/16",
		"port http":                            "65535",
		"port 80-90":                           `port "80-90"`,
		"port 70000":                           `"70000"`,
		"icmp port 80":                         "ports",
		"tcp host 10.1.1.5":                    "10.1.1.5",
		"ip6 host 10.1.1.5":                    "version",
		"(tcp":                                 "closing bracket",
		"tcp)":                                 "expected",
		"tcp udp":                              "expected",
		"tcp and":                              "at its end",
		"not":                                  "is missing",
		"src":                                  "host",
		"tcp[13] & 2 != 0":                     "single",
		"vlan 7":                               "known",
		"less many":                            "number",
		"proto 300":                            `proto "300"`,
		"host fe80::1%eth0":                    "address",
		strings.Repeat("tcp or ", 200) + "tcp": "256",
	} {
		f, err := Compile(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: got %v %v, want %q", text, f, err, want)
		}
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	f, err := Compile("tcp and not port 53 and net 10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	p := packets()[0]
	if n := testing.AllocsPerRun(100, func() { f.Match(p) }); n != 0 {
		t.Errorf("%v allocations a packet", n)
	}
	if f, err := Compile(" "); err != nil || !f.Match(nil) || !f.Match(p) {
		t.Errorf("the empty filter does not match everything: %v", err)
	}
}

// FuzzFilter has any text and any packet: the filter is refused, or its program means what it says and is one
// that the kernel takes.
func FuzzFilter(f *testing.F) {
	for i, text := range filters() {
		f.Add(text, packets()[i%len(packets())])
	}
	f.Add("(((((tcp", []byte{0x45})
	f.Add("port 1 or 2 or 3 and not 4", packets()[0])
	f.Fuzz(func(t *testing.T, text string, packet []byte) {
		c, err := Compile(text)
		if err != nil {
			if err.Error() == "" || !strings.HasPrefix(err.Error(), "filter") {
				t.Errorf("error %q", err)
			}
			return
		}
		if _, err := c.Program(); err != nil {
			t.Error(err)
		}
		want := c.root == nil
		if !want {
			func() {
				defer func() {
					if r := recover(); r != nil && r != tooShort {
						panic(r)
					}
				}()
				want = slow(packet).is(c.root)
			}()
		}
		if got := c.Match(packet); got != want {
			t.Errorf("%q: %v, want %v for %x", text, got, want, packet)
		}
	})
}

// slow evaluates a filter as it was parsed. Where the packet ends too early it panics with tooShort, and does
// not match.
type slow []byte

const tooShort = "the packet ends"

func (s slow) byte(i int) int {
	if i >= len(s) {
		panic(tooShort)
	}
	return int(s[i])
}

func (s slow) word(i int) uint16 {
	if i+2 > len(s) {
		panic(tooShort)
	}
	return binary.BigEndian.Uint16(s[i:])
}

func (s slow) is(n node) bool {
	switch n := n.(type) {
	case both:
		return s.is(n.a) && s.is(n.b)
	case either:
		return s.is(n.a) || s.is(n.b)
	case not:
		return !s.is(n.of)
	case size:
		if n.atMost {
			return uint64(len(s)) <= uint64(n.n)
		}
		return uint64(len(s)) >= uint64(n.n)
	case proto:
		v := s.byte(0) >> 4
		if v != 4 && v != 6 || n.version != 0 && int(n.version) != v || n.protocol < 0 {
			return (v == 4 || v == 6) && (n.version == 0 || int(n.version) == v)
		}
		p := s.byte(map[int]int{4: 9, 6: 6}[v])
		return p == n.protocol || v == 6 && p == 44 && s.byte(40) == n.protocol
	case network:
		at, long := 12, 4
		if n.prefix.Addr().Is6() {
			at, long = 8, 16
		}
		if v := s.byte(0) >> 4; v != map[int]int{4: 4, 16: 6}[long] {
			return false
		}
		return side(n.src, n.dst, n.all, func(src bool) bool {
			off := at
			if !src {
				off += long
			}
			for i := range (n.prefix.Bits() + 31) / 32 { // the program stops at the first word that differs
				if off+4*i+4 > len(s) {
					panic(tooShort)
				}
				var a [16]byte
				copy(a[:], n.prefix.Addr().AsSlice())
				copy(a[4*i:], s[off+4*i:off+4*i+4])
				addr := netip.AddrFrom16(a)
				if long == 4 {
					addr = netip.AddrFrom4([4]byte(a[:4]))
				}
				if bits := min(n.prefix.Bits(), 32*(i+1)); !netip.PrefixFrom(n.prefix.Addr(), bits).Contains(addr) {
					return false
				}
			}
			return true
		})
	case ports:
		v := s.byte(0) >> 4
		if v != 4 && v != 6 || n.version != 0 && int(n.version) != v {
			return false
		}
		at, of := 40, 6
		if v == 4 {
			at, of = 4*(s.byte(0)&15), 9
		}
		p := s.byte(of)
		if n.protocol >= 0 && p != n.protocol || n.protocol < 0 && p != 6 && p != 17 && p != 132 {
			return false
		}
		if v == 4 && s.word(6)&0x1fff != 0 {
			return false
		}
		return side(n.src, n.dst, n.all, func(src bool) bool {
			off := at
			if !src {
				off += 2
			}
			port := s.word(off)
			return n.from <= port && port <= n.to
		})
	}
	panic("a node that is not known")
}

func side(src, dst, all bool, is func(src bool) bool) bool {
	switch {
	case src && dst && all:
		return is(true) && is(false)
	case src && dst:
		return is(true) || is(false)
	}
	return is(src)
}
