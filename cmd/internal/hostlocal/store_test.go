package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrs(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func put(t *testing.T, s Store, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(s.Dir, s.Network), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, s.Network, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAllocate(t *testing.T) {
	s := Store{t.TempDir(), "net"}
	subnets := prefixes("10.9.3.0/29", "fd42:0:0:3::/64")
	a := Holder{"a", "eth0"}
	allocate := func(h Holder, wanted ...netip.Addr) (Allocation, error) {
		return s.Allocate(t.Context(), h, subnets, wanted...)
	}
	first, err := allocate(a)
	if want := "{[10.9.3.2/29 fd42:0:0:3::2/64] [10.9.3.2 fd42:0:0:3::2]}"; err != nil ||
		fmt.Sprint(first) != want {
		t.Fatalf("got %v, %v, want %s", first, err, want)
	}
	for name, want := range map[string]string{
		"10.9.3.2": "a\r\neth0", "fd42:0:0:3::2": "a\r\neth0", "last_reserved_ip.0": "10.9.3.2",
		"last_reserved_ip.1": "fd42:0:0:3::2",
	} {
		if b, err := os.ReadFile(filepath.Join(s.Dir, "net", name)); err != nil || string(b) != want {
			t.Errorf("%s has %q, %v, want %q", name, b, err, want)
		}
	}
	if again, err := allocate(a, addrs("10.9.3.2")...); err != nil || len(again.New) > 0 ||
		!slices.Equal(again.Addresses, first.Addresses) {
		t.Errorf("a second time: %v, %v", again, err)
	}
	if other, err := allocate(Holder{"a", "eth1"}, addrs("10.9.3.6", "fd42:0:0:3::ffff")...); err != nil ||
		fmt.Sprint(other.Addresses) != "[10.9.3.6/29 fd42:0:0:3::ffff/64]" {
		t.Errorf("stated ones: %v, %v", other, err)
	}
	for wanted, says := range map[string]string{
		"10.9.3.1":        "gateway",
		"fd42:0:0:3::1":   "gateway",
		"10.9.3.0":        "no pod's",
		"10.9.3.7":        "no pod's",
		"fd42:0:0:3::":    "no pod's",
		"10.9.4.2":        "subnets",
		"10.9.3.2":        "eth0",
		"::ffff:10.9.3.6": "eth1",
	} {
		if got, err := allocate(Holder{"b", "eth0"}, addrs(wanted)...); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, %v, want %q", wanted, got, err, says)
		}
	}
	if _, err := allocate(a, addrs("10.9.3.4")...); err == nil ||
		!strings.Contains(err.Error(), "has 10.9.3.2") {
		t.Errorf("another one than it has: %v", err)
	}
	if _, err := allocate(Holder{"b", "eth0"}, addrs("10.9.3.4", "10.9.3.5")...); err == nil {
		t.Error("two of one family")
	}
	var taken *TakenError
	if _, err := allocate(Holder{"b", "eth0"}, addrs("10.9.3.2")...); !errors.As(err, &taken) ||
		taken.Holder != a {
		t.Errorf("got %v", err)
	}
	// After .6, which was given last, the search begins at the front: .3, .4, .5, and then all are taken.
	for i, want := range []string{"10.9.3.3", "10.9.3.4", "10.9.3.5"} {
		if got, err := allocate(Holder{fmt.Sprint("c", i), "eth0"}); err != nil ||
			got.New[0] != netip.MustParseAddr(want) {
			t.Errorf("got %v, %v, want %s", got, err, want)
		}
	}
	before, _ := s.Reservations()
	if got, err := allocate(Holder{"d", "eth0"}); !errors.Is(err, ErrFull) ||
		!strings.Contains(err.Error(), "10.9.3.0/29") || len(got.Addresses) > 0 {
		t.Errorf("full: %v, %v", got, err)
	}
	if after, _ := s.Reservations(); len(after) != len(before) {
		t.Errorf("a refusal of one family keeps the other's: %v", after)
	}
	if freed, err := s.Release(t.Context(), a); err != nil ||
		!slices.Equal(freed, addrs("10.9.3.2", "fd42:0:0:3::2")) {
		t.Errorf("released %v, %v", freed, err)
	}
	if freed, err := s.Release(t.Context(), a); err != nil || len(freed) > 0 {
		t.Errorf("released twice: %v, %v", freed, err)
	}
	if got, err := s.Lookup(Holder{"a", "eth1"}); err != nil ||
		!slices.Equal(got, addrs("10.9.3.6", "fd42:0:0:3::ffff")) {
		t.Errorf("the container's other interface has %v, %v", got, err)
	}
	if freed, err := (Store{s.Dir, "never"}).Release(t.Context(), a); err != nil || freed != nil {
		t.Errorf("of a network that is not there: %v, %v", freed, err)
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "never")); err == nil {
		t.Error("a release makes no directory")
	}
}

func TestAllocateRefusesWhatCannotBeReadBack(t *testing.T) {
	for _, h := range []Holder{{"", "eth0"}, {"../a", "eth0"}, {"a", ""}, {"a", "e/0"},
		{"a", "a-name-that-is-too-long"}} {
		if _, err := (Store{t.TempDir(), "net"}).Allocate(t.Context(), h, prefixes("10.9.3.0/29")); err == nil {
			t.Errorf("%q", h)
		}
	}
	for _, subnets := range [][]netip.Prefix{nil, prefixes("10.9.3.0/31"), prefixes("10.9.3.4/32"),
		prefixes("10.9.0.0/16", "10.9.3.0/24")} {
		if _, err := (Store{t.TempDir(), "net"}).Allocate(t.Context(), Holder{"a", "eth0"}, subnets); err == nil {
			t.Errorf("%v", subnets)
		}
	}
	if _, err := (Store{t.TempDir(), "../net"}).Allocate(t.Context(), Holder{"a", "eth0"},
		prefixes("10.9.3.0/29")); err == nil {
		t.Error("a name that leads elsewhere")
	}
}

// What a crash leaves is put right by the next who holds the lock, and what cannot be read belongs to
// somebody.
func TestLeftovers(t *testing.T) {
	s := Store{t.TempDir(), "net"}
	put(t, s, "10.9.3.2", "") // the plugin died before it wrote the holder
	put(t, s, newName, "half")
	put(t, s, "last_reserved_ip.0", "not an address")
	put(t, s, "10.9.3.3", "\x00\x00")
	for i, want := range []string{"10.9.3.2", "10.9.3.4"} {
		got, err := s.Allocate(t.Context(), Holder{fmt.Sprint("a", i), "eth0"}, prefixes("10.9.3.0/29"))
		if err != nil || fmt.Sprint(got.New) != "["+want+"]" {
			t.Errorf("got %v, %v, want %s", got, err, want)
		}
	}
	if freed, err := s.Release(t.Context(), Holder{"a0", "eth0"}); err != nil || len(freed) != 1 {
		t.Errorf("beside a file that cannot be read: %v, %v", freed, err)
	}
	put(t, s, "10.9.3.5", "old")
	if freed, err := s.Release(t.Context(), Holder{"old", "eth0"}); err != nil ||
		!slices.Equal(freed, addrs("10.9.3.5")) {
		t.Errorf("of an old host-local: %v, %v", freed, err)
	}
}

// A write that fails half way gives back what was made.
func TestWriteFailsHalfWay(t *testing.T) {
	s := Store{t.TempDir(), "net"}
	if err := os.MkdirAll(filepath.Join(s.Dir, "net", "last_reserved_ip.1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Allocate(t.Context(), Holder{"a", "eth0"}, prefixes("10.9.3.0/29", "fd00::/64")); err == nil {
		t.Error("wrote over a directory")
	}
	if left, err := s.Reservations(); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestLockIsNotWaitedForInVain(t *testing.T) {
	s := Store{t.TempDir(), "net"}
	put(t, s, lockName, "")
	f, err := os.Open(filepath.Join(s.Dir, "net", lockName))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Allocate(ctx, Holder{"a", "eth0"}, prefixes("10.9.3.0/29")); !errors.Is(err,
		context.DeadlineExceeded) || !strings.Contains(err.Error(), "net/lock") {
		t.Errorf("got %v", err)
	}
}

func FuzzChoose(f *testing.F) {
	f.Add(uint8(29), uint8(3), []byte{2, 3, 9})
	f.Fuzz(func(t *testing.T, bits, lastOctet uint8, full []byte) {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 3, 0}), 24+int(bits%7))
		pools, err := poolsOf([]netip.Prefix{subnet}, nil)
		if err != nil {
			t.Fatal(err)
		}
		used, list := map[netip.Addr]bool{}, []Reservation{}
		for _, b := range full {
			a := netip.AddrFrom4([4]byte{10, 9, 3, b})
			used[a], list = true, append(list, Reservation{Address: a})
		}
		free := 0
		for a := pools[0].first; !pools[0].last.Less(a); a = a.Next() {
			if a != Gateway(subnet) && !used[a] {
				free++
			}
		}
		got, err := choose(pools, Holder{"a", "eth0"}, list, func(int) netip.Addr {
			return netip.AddrFrom4([4]byte{10, 9, 3, lastOctet})
		})
		if (err == nil) != (free > 0) {
			t.Fatalf("%d are free: %v, %v", free, got, err)
		}
		if err == nil && (used[got.New[0]] || got.New[0] == Gateway(subnet) || got.New[0] == subnet.Addr() ||
			!subnet.Contains(got.New[0])) {
			t.Fatalf("got %v", got)
		}
	})
}

// TestFree: of a holder's addresses those that are named become free, under the plugin's lock, and nobody
// else's.
func TestFree(t *testing.T) {
	s := Store{t.TempDir(), "net"}
	a, b := Holder{"a", "eth0"}, Holder{"b", "eth0"}
	put(t, s, "10.9.3.2", "a\r\neth0")
	put(t, s, "fd42:0:0:3::2", "a\r\neth0")
	put(t, s, "10.9.3.3", "b\r\neth0")
	put(t, s, "10.9.3.4", "broken\n\nfile of /somebody")
	if _, err := s.Release(t.Context(), a, addrs("10.9.3.2", "10.9.3.3", "10.9.3.4", "10.9.3.5")...); err != nil {
		t.Error(err)
	}
	for h, want := range map[Holder][]netip.Addr{a: addrs("fd42:0:0:3::2"), b: addrs("10.9.3.3")} {
		if got, _ := s.Lookup(h); !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", h, got, want)
		}
	}
	if _, err := s.Release(t.Context(), a, addrs("10.9.3.2")...); err != nil {
		t.Errorf("once more: %v", err)
	}
	f, err := os.Open(filepath.Join(s.Dir, s.Network, lockName))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Release(ctx, a, addrs("fd42:0:0:3::2")...); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while another process holds the lock: %v", err)
	}
	if got, _ := s.Lookup(a); len(got) != 1 {
		t.Errorf("without the lock %v was freed", got)
	}
}
