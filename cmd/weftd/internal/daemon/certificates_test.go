package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/lease/etcd/etcdtest"
)

// A certificate that has expired is not hidden by its issuer's, which stands in the same file and lasts longer.
func TestAChainHidesNoExpiry(t *testing.T) {
	ca := etcdtest.NewCA(t)
	leaf, _ := ca.Expired("node")
	for _, order := range [][]string{{leaf, ca.File}, {ca.File, leaf}} {
		var chain []byte
		for _, f := range order {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			chain = append(chain, b...)
		}
		path := filepath.Join(t.TempDir(), "chain.pem")
		if err := os.WriteFile(path, chain, 0o600); err != nil {
			t.Fatal(err)
		}
		if notes := certificateNotes([]string{path}, time.Now()); len(notes) != 1 ||
			!strings.Contains(notes[0], "has expired") {
			t.Errorf("%v: %q", order, notes)
		}
	}
}
