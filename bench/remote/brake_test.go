package remote

import (
	"net/netip"
	"testing"
	"time"
)

// guesses tries wrong tokens, one from each source in turn, and says how many were examined.
func guesses(b *brake, now time.Time, n int, from func(i int) netip.Addr) (examined int) {
	for i := range n {
		if ok, _ := b.try(now, from(i), false); ok {
			examined++
		}
	}
	return examined
}

func numbered(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

func TestBrake(t *testing.T) {
	var b brake
	now := time.Now()
	friend, foe, stranger := numbered(1), numbered(2), numbered(3)
	one := func(a netip.Addr) func(int) netip.Addr { return func(int) netip.Addr { return a } }
	if ok, _ := b.try(now, friend, true); !ok {
		t.Error("the first is refused")
	}
	if n := guesses(&b, now, 1000, one(foe)); n != sourceGuesses {
		t.Errorf("%d guesses of one source were examined", n)
	}
	// Not even the right token is examined from that source, or the brake would not brake; from others it is.
	if ok, wait := b.try(now, foe, true); ok || wait <= 0 || wait > sourceInterval {
		t.Errorf("the right token among guesses: %v, wait %s", ok, wait)
	}
	if ok, _ := b.try(now, stranger, true); !ok {
		t.Error("another source is refused")
	}
	now = now.Add(3 * sourceInterval)
	if n := guesses(&b, now, 1000, one(foe)); n != 3 {
		t.Errorf("%d guesses after three intervals", n)
	}
	if ok, _ := b.try(now.Add(sourceInterval), foe, true); !ok {
		t.Error("the right token an interval later is refused")
	}

	// Guesses from everywhere at once are limited together, and a source that gave the right token is not kept out.
	now = now.Add(time.Hour)
	everywhere := func(i int) netip.Addr { return numbered(1000 + i) }
	if n := guesses(&b, now, 100_000, everywhere); n != allGuesses {
		t.Errorf("%d guesses of all sources were examined", n)
	}
	if ok, wait := b.try(now, numbered(4), true); ok || wait <= 0 || wait > allInterval {
		t.Errorf("a newcomer's right token: %v, wait %s", ok, wait)
	}
	if ok, _ := b.try(now, friend, true); !ok {
		t.Error("who had the token before is refused")
	}
	if ok, _ := b.try(now.Add(allInterval), numbered(4), true); !ok {
		t.Error("a newcomer's right token is refused an interval later")
	}
	if n := guesses(&b, now, 1000, one(friend)); n != sourceGuesses {
		t.Errorf("%d guesses of one that had the token", n)
	}

	// Neither table grows when guesses go on for hours.
	for i := range 100_000 {
		now = now.Add(allInterval)
		b.try(now, numbered(200_000+i), i%10 == 0)
	}
	if len(b.sources) > maxSources || len(b.known) > maxKnown {
		t.Errorf("%d sources and %d known ones are kept", len(b.sources), len(b.known))
	}
}

func TestSourceOf(t *testing.T) {
	for a, want := range map[string]string{"192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "::1": "::1", "fe80::1%eth0": "fe80::"} {
		if got := sourceOf(netip.MustParseAddr(a)); got.String() != want {
			t.Errorf("%s counts as %s, want %s", a, got, want)
		}
	}
}
