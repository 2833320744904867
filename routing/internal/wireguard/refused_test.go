package wireguard

import (
	"net/netip"
	"testing"
)

// TestRefusals counts by address what the library says, and nothing else.
func TestRefusals(t *testing.T) {
	var r refusals
	a := netip.MustParseAddrPort("192.0.2.2:51820")
	r.note("%v - Sending keepalive packet", []any{a})
	r.note(saysInitiation+" %s", []any{a.String()})
	r.note(saysInitiation+" %s", []any{a.String()})
	r.note(saysResponse+" %s", []any{"[2001:db8::2]:7"})
	r.note(saysMark, nil)
	r.note(saysInitiation, nil)
	r.note(saysInitiation+" %s", []any{"nonsense"})
	if got := r.of(a.Addr()); got.Initiations != 2 || got.Responses != 0 || got.Last.IsZero() {
		t.Errorf("%+v", got)
	}
	if got := r.of(netip.MustParseAddr("2001:db8::2")); got.Responses != 1 {
		t.Errorf("%+v", got)
	}
	if r.wrongKeys() != 1 || r.of(netip.MustParseAddr("192.0.2.3")) != (Refused{}) {
		t.Error("something else was counted")
	}
	for i := range 2 * mostRefused {
		r.note(saysInitiation+" %s", []any{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 7).String()})
	}
	if len(r.by) != mostRefused {
		t.Errorf("%d addresses are kept", len(r.by))
	}
}
