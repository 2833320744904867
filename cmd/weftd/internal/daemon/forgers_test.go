package daemon

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft/tunnel"
)

func TestForgersAreNamedWhileTheyAreRecent(t *testing.T) {
	now := time.Now()
	l := []tunnel.Stranger{
		{Addr: netip.MustParseAddr("10.1.3.7"), Packets: 9, LastRx: now.Add(-time.Minute)},
		{Addr: netip.MustParseAddr("10.1.4.7"), Packets: 1, LastRx: now.Add(-time.Hour)},
	}
	got := forgerNotes(l, now)
	if len(got) != 1 || !strings.Contains(got[0], "10.1.3.7") || !strings.Contains(got[0], "9 packets") {
		t.Errorf("got %q", got)
	}
}
