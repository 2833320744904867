package probe

import (
	"net"
	"testing"
	"time"
)

// A device that was known by another name, as one that was renamed, or made with the index of one that is gone, is found.
func TestDevicesAreFoundByTheNamesThatTheyHave(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	do := func(f func() error) error { asked++; return f() }
	d := deviceNames{names: map[int]string{lo.Index: "was"}, read: time.Now().Add(-time.Hour)}
	if !d.have(lo.Index, []string{"lo"}, do) || !d.have(lo.Index, []string{"lo"}, do) {
		t.Error("lo is not found")
	}
	for range 10 {
		if d.have(lo.Index, []string{"eth0"}, do) {
			t.Error("lo is found as eth0")
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
