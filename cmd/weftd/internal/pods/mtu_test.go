package pods

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/podport"
)

// Pods whose MTU is the overlay's follow it, by the file that came with them; others stay as they are, and
// who cannot be told is named.
func TestPodsFollowTheMTU(t *testing.T) {
	before, dir := descriptors(t), t.TempDir()
	k := &keeper{map[podport.Key]Kept{}}
	s, plane := attached(t, Options{Keeper: k})
	for _, p := range []struct {
		id, addr string
		mtu      int
	}{{"chosen", "10.42.1.5", 1400}, {"follows", "10.42.1.6", 1472}, {"six", "fd00:1::8", 1472},
		{"untold", "10.42.1.7", 1472}} {
		fds := []int{descriptor(t)}
		if p.id != "untold" {
			file, err := unix.Open(filepath.Join(dir, p.id), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			fds = append(fds, file)
		}
		r := request(p.id, p.addr)
		r.MTU = p.mtu
		if _, err := s.Attach(r, fds); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ overlay, follows, six int }{{1372, 1372, 1372}, {1172, 1172, 1280},
		{1472, 1472, 1472}} {
		l := local()
		l.MTU = c.overlay
		s.SetLocal(l)
		s.follow()
		want := map[string]int{"chosen": 1400, "follows": c.follows, "six": c.six, "untold": 1472}
		for _, p := range s.List().Pods {
			if p.MTU != want[p.ID] || k.kept[p.Key].Request.MTU != want[p.ID] {
				t.Errorf("overlay %d: %s has %d, and is kept with %d, want %d", c.overlay, p.ID, p.MTU,
					k.kept[p.Key].Request.MTU, want[p.ID])
			}
			if cannot := p.ID == "untold" && c.overlay < 1472; cannot != strings.Contains(p.Problem,
				"weft attach as before") {
				t.Errorf("overlay %d: %s has the problem %q", c.overlay, p.ID, p.Problem)
			}
			if got, err := os.ReadFile(filepath.Join(dir, p.ID)); p.ID == "follows" &&
				(err != nil || string(got) != fmt.Sprint(c.follows)) {
				t.Errorf("the file of its MTU says %q: %v", got, err)
			}
		}
		if plane.mtus[2] != c.follows || plane.mtus[3] != c.six || plane.mtus[1] != 0 {
			t.Errorf("overlay %d: ports have %v", c.overlay, plane.mtus)
		}
	}
	for _, p := range s.List().Pods {
		if _, err := s.Detach(p.Key); err != nil {
			t.Error(err)
		}
	}
	if now := descriptors(t); now != before {
		t.Errorf("%d descriptors are open, before it were %d", now, before)
	}
}
