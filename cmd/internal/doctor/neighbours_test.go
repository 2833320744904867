package doctor

import "testing"

// The kernel of this machine shows its tables in the form that procfs reads.
func TestNeighbourTable(t *testing.T) {
	for _, n := range readNeighbours(readNeighbours(nil)) {
		if n.Entries < 0 || n.Refused < n.Lately {
			t.Errorf("%+v", n)
		}
	}
}
