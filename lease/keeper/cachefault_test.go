package keeper_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weft/lease"
	"weft/lease/belief"
	"weft/lease/leasetest"
)

// A disk that takes nothing costs neither the lease nor the log; once it does the state is saved, though
// nothing else happens.
func TestCacheFaultIsSaidOnceAndMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "cache")
		if err := os.WriteFile(dir, nil, 0o600); err != nil { // where the directory has to be
			t.Fatal(err)
		}
		var log bytes.Buffer
		o := options(t, "me", "198.51.100.1")
		o.Cache, o.Logger = belief.NewCache(dir, "/net"), slog.New(slog.NewTextHandler(&log, nil))
		k := newKeeper(t, leasetest.New("c1", []byte(network)), o)
		stop := run(k)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s := k.Status(); s.State != lease.Held || s.CacheErr == nil ||
			!strings.Contains(s.CacheErr.Error(), dir) {
			t.Errorf("%s, %v", s.State, s.CacheErr)
		}
		if n := strings.Count(log.String(), dir); n != 1 {
			t.Errorf("said %d times:\n%s", n, &log)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if c, err := belief.NewCache(dir, "/net").Load(); err != nil || c.Own.Node() != "me" ||
			k.Status().CacheErr != nil {
			t.Errorf("not saved once that is possible: %v, %v", err, k.Status().CacheErr)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
