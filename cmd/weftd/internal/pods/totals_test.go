package pods

import (
	"testing"
)

// A counter that goes back is taken for one that began anew.
func TestTotalsDoNotGoBackWhenAPodGoes(t *testing.T) {
	s, p := attached(t, Options{}, "1", "2")
	p.before = func() {
		if got := s.Totals(); got.SentPackets != 3 {
			t.Errorf("while a port is closed pods have sent %d, want 3", got.SentPackets)
		}
	}
	if _, err := s.Detach(request("2").Key); err != nil {
		t.Fatal(err)
	}
	if p.before = nil; s.Totals().SentPackets != 3 {
		t.Errorf("then %d, want 3", s.Totals().SentPackets)
	}
}
