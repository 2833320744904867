package encap

import (
	"math"
	"testing"
)

func TestOverheadAndInnerMTU(t *testing.T) {
	for _, c := range []struct {
		f         Format
		outer6    bool
		name      string
		overhead  int
		underlay  int
		wantedMTU int
	}{
		{FormatIP, false, "ip", 28, 1500, 1472},
		{FormatIP, true, "ip", 48, 1500, 1452},
		{FormatVXLAN, false, "vxlan", 50, 1500, 1450},
		{FormatVXLAN, true, "vxlan", 70, 9000, 8930},
		{FormatVXLAN, true, "vxlan", 70, 69, 0},
		{FormatIPIP, false, "ipip", 20, 1500, 1480},
		{FormatIPIP, true, "ipip", 0, 1500, 0},
		{FormatIP, false, "ip", 28, math.MinInt, 0},
		{FormatIP, false, "ip", 28, 1 << 30, 65507},
		{FormatVXLAN, false, "vxlan", 50, 65536, 65485},
		{0, false, "format(0)", 0, 1500, 0},
		{9, true, "format(9)", 0, 1500, 0},
	} {
		if got := c.f.Overhead(c.outer6); got != c.overhead {
			t.Errorf("%v outer6=%t: overhead %d, want %d", c.f, c.outer6, got, c.overhead)
		}
		if got := InnerMTU(c.f, c.underlay, c.outer6); got != c.wantedMTU {
			t.Errorf("%v outer6=%t: inner MTU of %d is %d, want %d", c.f, c.outer6, c.underlay, got, c.wantedMTU)
		}
		if c.f.String() != c.name {
			t.Errorf("name %q, want %q", c.f, c.name)
		}
		if c.overhead > MaxOverhead {
			t.Errorf("%v: overhead above MaxOverhead", c.f)
		}
	}
}

// Overhead equals the length of what the encoders add.
func TestOverheadIsWhatIsAppended(t *testing.T) {
	for _, f := range []Format{FormatIP, FormatVXLAN} {
		for _, o := range []Outer{outer4(), outer6()} {
			var payload []byte
			if f == FormatVXLAN {
				payload, _ = AppendVXLAN(nil, VXLAN{VNI: 1})
			}
			b, err := AppendOuter(nil, o, len(payload)+100)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := len(b)+len(payload), f.Overhead(o.Dst.Addr().Is6()); got != want {
				t.Errorf("%v to %v: %d bytes appended, overhead says %d", f, o.Dst, got, want)
			}
			if len(b) != o.headerLen() {
				t.Errorf("headerLen %d, appended %d", o.headerLen(), len(b))
			}
		}
	}
}

// TestGSOMaxSize checks the promise for every usual header: what the kernel makes of
// the limit, in segments, fits one datagram, and fills it but for a segment or two.
func TestGSOMaxSize(t *testing.T) {
	for _, f := range []Format{FormatIP, FormatVXLAN} {
		for _, mtu := range []int{576, 1280, 1372, 1422, 1450, 1472, 8972} {
			limit := GSOMaxSize(f, mtu)
			inDatagram := mtu + f.Overhead(false) - 28
			for _, headers := range []int{40, 52, 60, 72} { // IPv4 and IPv6 with TCP, with and without timestamps
				segments := (limit - 321) / (mtu - headers)
				if segments*inDatagram > 65507 {
					t.Errorf("%v, MTU %d: %d segments take %d bytes", f, mtu, segments, segments*inDatagram)
				}
				if most := 65507 / inDatagram; segments < most-most/10-1 {
					t.Errorf("%v, MTU %d: %d segments, where %d fit", f, mtu, segments, most)
				}
			}
		}
	}
	if got := GSOMaxSize(0, 1472) + GSOMaxSize(FormatIP, 100); got != 0 {
		t.Errorf("an invalid format and an MTU of 100 give %d, want 0", got)
	}
}
