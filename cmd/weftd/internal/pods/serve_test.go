package pods

import (
	"testing"

	"weft/cmd/internal/podport"
)

// Each data plane counts its ports from 1.
func TestALostPortIsNotTheNextDataPlanes(t *testing.T) {
	s, p := attached(t, Options{}, "1", "2")
	s.Lost(2)
	p.close()
	s.Serve(nil, "another network configuration is being taken up")
	next := newPlane()
	defer next.close()
	s.Serve(next, "")
	s.reap()
	for _, p := range s.List().Pods {
		if p.State != podport.Attached {
			t.Errorf("%s is %s: %s", p.Key, p.State, p.Problem)
		}
	}
}
