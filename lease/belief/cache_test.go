package belief_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"weft/lease"
	"weft/lease/belief"
	"weft/lease/keeper"
	"weft/lease/leasetest"
)

func cachedState(t *testing.T) belief.Cached {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	own, a, b := leasetest.Record(t, "10.244.1.0/24", "me", "192.0.2.1", 3),
		leasetest.Record(t, "10.244.2.0/24", "a", "192.0.2.2", 4),
		leasetest.Record(t, "10.244.3.0/24", "", "192.0.2.3", 5)
	own.Expires, a.Expires = now.Add(time.Hour), now.Add(2*time.Hour)
	b.Reservation = true
	return belief.Cached{Own: own, Memory: belief.Memory{
		ClusterID: "c1", Revision: 17, Config: []byte(`{"Network": "10.244.0.0/16"}`), Why: "because",
		Peers: []belief.Remembered{{Record: &a, Until: a.Expires},
			{Record: &b, Until: now.Add(lease.TTL), Held: true}},
	}}
}

func TestCacheRoundTrip(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if _, err := belief.NewCache(dir, "/net").Load(); !errors.Is(err, belief.ErrNoCache) ||
		!errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	want := cachedState(t)
	if _, err := belief.NewCache(dir, "/net").Save(want); err != nil {
		t.Fatal(err)
	}
	got, err := belief.NewCache(dir, "/net").Load()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("left behind: %v, %v", entries, err)
	}
	if info, _ := entries[0].Info(); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %o, want 600", info.Mode().Perm())
	}
	if _, err := belief.NewCache(dir, "/other").Load(); !errors.Is(err, belief.ErrNoCache) {
		t.Errorf("another store's cache: %v", err)
	}
}

func TestCacheIsWrittenOnlyWhenSomethingChanged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lease.json")
	c, s := belief.NewCache(dir, "/net"), cachedState(t)
	save := func() bool { // reports whether the file was written
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if _, err := c.Save(s); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(path)
		return err == nil
	}
	if !save() {
		t.Fatal("the first state was not written")
	}
	s.Memory.Revision++
	s.Memory.Peers[0].Until = s.Memory.Peers[0].Until.Add(time.Minute)
	s.Own.Expires = s.Own.Expires.Add(time.Minute)
	if save() {
		t.Error("written though only clocks moved")
	}
	s.Memory.Peers[0].Record.Revision++
	if !save() {
		t.Error("a renewed record was not written")
	}
	s.Memory.Peers[0].Record.Weft.Probe = 8286 // a Node's record has no revision that moves with it
	if !save() {
		t.Error("another port for probes was not written")
	}
	s.Own = lease.Record{}
	if !save() {
		t.Error("the loss of our subnet was not written")
	}
}

func TestCacheRefusesGarbage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lease.json")
	if _, err := belief.NewCache(dir, "/net").Save(cachedState(t)); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	change := func(old, new string) string {
		if !strings.Contains(string(good), old) {
			t.Fatalf("%q is not in the file", old)
		}
		return strings.ReplaceAll(string(good), old, new)
	}
	for name, text := range map[string]string{
		"empty": "", "text": "hello", "half": string(good[:len(good)/2]), "trailing": string(good) + "{}",
		"null":      "null",
		"version":   change(`"Version": 1`, `"Version": 2`),
		"cluster":   change(`"c1"`, `""`),
		"revision":  change(`"Revision": 17`, `"Revision": -1`),
		"config":    change(`10.244.0.0/16`, `nonsense`),
		"key":       change(`10.244.2.0-24`, `10.244.2.1-24`),
		"twice":     change(`10.244.2.0-24`, `10.244.3.0-24`),
		"no key":    change(`10.244.2.0-24`, ``),
		"address":   change(`192.0.2.2`, `192.0.2.222222`),
		"own key":   change(`10.244.1.0-24`, `x`),
		"no end":    change(`2026-01-01T02:00:00Z`, `0001-01-01T00:00:00Z`),
		"not a day": change(`2026-01-01T02:00:00Z`, `yesterday`),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := belief.NewCache(dir, "/net").Load(); !errors.Is(err, belief.ErrNoCache) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestSaveCacheSaysWhetherItWrote: a save that found nothing new does not delay the next.
func TestSaveCacheSaysWhetherItWrote(t *testing.T) {
	t.Parallel()
	cache := belief.NewCache(t.TempDir(), "kubernetes")
	own := leasetest.Record(t, "10.42.1.0/24", "a", "192.0.2.1", 1)
	save := keeper.SaveCache{Cached: belief.Cached{Own: own}}
	for _, want := range []bool{true, false} {
		if got := save.Do(cache); got.Err != nil || got.Written != want {
			t.Errorf("got %+v, want Written %v", got, want)
		}
	}
}
