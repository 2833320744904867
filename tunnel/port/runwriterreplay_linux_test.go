package port

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// verdicts are those of ps in words.
func verdicts(ps []*Packet) string {
	var l []string
	for _, p := range ps {
		switch {
		case p.Verdict == Delivered:
			l = append(l, "ok")
		case p.Verdict == Pending:
			l = append(l, "pending")
		default:
			l = append(l, p.Verdict.Reason().String())
		}
	}
	return strings.Join(l, " ")
}

// TestRunReplay refuses sends: what was in them goes again in pieces, each packet gets the
// verdict of the datagram that it was in, and the offload is lost only if it was to blame.
func TestRunReplay(t *testing.T) {
	// Refused is what the wire says to a run, and to a datagram alone of these bytes.
	together := func(e unix.Errno) func(int, []byte) unix.Errno {
		return func(n int, _ []byte) unix.Errno {
			if n > 1 {
				return e
			}
			return 0
		}
	}
	andAlone := func(e, alone unix.Errno, size int) func(int, []byte) unix.Errno {
		return func(n int, b []byte) unix.Errno {
			switch {
			case n > 1:
				return e
			case len(b) == size:
				return alone
			}
			return 0
		}
	}
	super := outgoing{size: 40 + 2500, mss: 1000, recv: RecvPack}
	for _, tt := range []struct {
		name     string
		send     []outgoing
		refuse   func(int, []byte) unix.Errno
		sent     string
		verdicts string
		gso      OffloadState
	}{
		{"EIO", of(0, 1400, 1400, 64), together(unix.EIO), "!1400 1400 64 / 1400 / 1400 / 64", "ok ok ok",
			OffloadLost},
		{"EINVAL", of(0, 64, 64), together(unix.EINVAL), "!64 64 / 64 / 64", "ok ok", OffloadLost},
		{"of packed ones", of(RecvPack, 1400, 64, 1400, 64, 64), together(unix.EINVAL),
			"!1400+64~8 1400+64~8 64 / 1400+64~8 / 1400+64~8 / 64", "ok ok ok ok ok", OffloadLost},
		{"of a padded one only that is refused", of(RecvPack, 1200, 200, 1400, 64),
			andAlone(unix.EIO, unix.EPERM, 1472),
			"!1200+200~72 1400+64 / !1200+200~72 / 1400+64", "underlay underlay ok ok", OffloadOn},
		{"of the last only", of(RecvPack, 1200, 200, 1400, 64), andAlone(unix.EIO, unix.EPERM, 1464),
			"!1200+200~72 1400+64 / 1200+200~72 / !1400+64", "ok ok underlay underlay", OffloadLost},
		{"of superpackets", []outgoing{super, super}, together(unix.EINVAL),
			"!1040 1040 540 / 1040 / 1040 / 540 / !1040 1040 540 / 1040 / 1040 / 540", "ok ok", OffloadLost},
		{"a part of a superpacket is lost", []outgoing{super, {size: 64, recv: RecvPack}},
			andAlone(unix.EINVAL, unix.ENOBUFS, 540),
			"!1040 1040 540 / 1040 / 1040 / !540 / 64", "busy ok", OffloadLost},
		{"what fits is sent when the others are too large", of(0, 1400, 1400, 64), together(unix.EMSGSIZE),
			"!1400 1400 64 / 64", "too_big too_big ok", OffloadOn},
		{"also packed", of(RecvPack, 1400, 64, 64), together(unix.EMSGSIZE), "!1400+64~8 64 / 64",
			"too_big too_big ok", OffloadOn},
		{"also packed and padded", of(RecvPack, 1400, 64, 1000, 64), together(unix.EMSGSIZE),
			"!1400+64~8 1000+64 / 1000+64", "too_big too_big ok ok", OffloadOn},
		{"too large says EINVAL first", of(0, 1400, 1400, 64), andAlone(unix.EINVAL, unix.EMSGSIZE, 1400),
			"!1400 1400 64 / !1400 / 64", "too_big too_big ok", OffloadOn},
		{"a firewall", of(0, 1400, 1400), together(unix.EPERM), "!1400 1400", "underlay underlay", OffloadOn},
		{"a full queue", of(RecvPack, 64, 64, 64), func(int, []byte) unix.Errno { return unix.ENOBUFS },
			"!64+64+64", "busy busy busy", OffloadOn},
		{"a datagram alone is not sent again", of(RecvPack, 64, 64), func(int, []byte) unix.Errno {
			return unix.EINVAL
		}, "!64+64", "malformed malformed", OffloadOn},
		{"the other peer's are not touched", []outgoing{{size: 64}, {size: 70, to: 3}, {size: 64}},
			together(unix.EPERM), "!64 64 / 70", "underlay ok underlay", OffloadOn},
		{"nor those with another mark", []outgoing{{size: 64, ecn: 2}, {size: 64, ecn: 2}, {size: 64, ecn: 3}},
			together(unix.EPERM), "!64 64 / 64", "underlay underlay ok", OffloadOn},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeWire(t, 64)
			f.refuse = tt.refuse
			ps := packets(tt.send, 1472)
			f.w.writeRuns(NewRing(), ps)
			if got := f.sent(); got != tt.sent {
				t.Errorf("sent %s\nwant %s", got, tt.sent)
			}
			if got := verdicts(ps); got != tt.verdicts {
				t.Errorf("verdicts %s, want %s", got, tt.verdicts)
			}
			if got := f.w.gso.stats().State; got != tt.gso {
				t.Errorf("the offload is %v, want %v", got, tt.gso)
			}
		})
	}
}
