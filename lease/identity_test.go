package lease_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/lease"
	"weft/lease/leasetest"
)

func TestLoadIdentity(t *testing.T) {
	dir := t.TempDir()
	machine := filepath.Join(dir, "machine-id")
	const id = "0123456789abcdef0123456789abcdef"
	write(t, machine, id+"\n")
	o := lease.IdentityOptions{CacheDir: filepath.Join(dir, "cache"), MachineID: machine}

	first, source, err := lease.LoadIdentity(o)
	if err != nil || source != lease.IdentityMachine {
		t.Fatalf("%q from %s, %v", first, source, err)
	}
	// HMAC-SHA256 with the machine id as key, computed with openssl dgst -hmac.
	if first != hmacOfMachine {
		t.Errorf("id %q, want %q", first, hmacOfMachine)
	}
	if strings.Contains(first, id[:8]) {
		t.Errorf("id %q shows the machine id, which is to be kept secret", first)
	}
	write(t, machine, strings.Repeat("f", 32))
	if again, source, err := lease.LoadIdentity(o); err != nil || again != first ||
		source != lease.IdentityStored {
		t.Errorf("%q from %s, %v: want the stored one", again, source, err)
	}
	o.Given = "node-7.example_x"
	if given, source, err := lease.LoadIdentity(o); err != nil || given != o.Given ||
		source != lease.IdentityGiven {
		t.Errorf("%q from %s, %v: want the given one", given, source, err)
	}
}

// TestLoadIdentityWithoutMachineID is a container: the identity is drawn once and kept.
func TestLoadIdentityWithoutMachineID(t *testing.T) {
	dir := t.TempDir()
	o := lease.IdentityOptions{CacheDir: filepath.Join(dir, "a"), MachineID: filepath.Join(dir, "none")}
	first, source, err := lease.LoadIdentity(o)
	if err != nil || source != lease.IdentityRandom || len(first) != 32 {
		t.Fatalf("%q from %s, %v", first, source, err)
	}
	if again, source, err := lease.LoadIdentity(o); err != nil || again != first ||
		source != lease.IdentityStored {
		t.Errorf("%q from %s, %v: want the stored one", again, source, err)
	}
	o.CacheDir = filepath.Join(dir, "b")
	if other, _, err := lease.LoadIdentity(o); err != nil || other == first {
		t.Errorf("another node drew %q too, %v", other, err)
	}
}

const hmacOfMachine = "71b5cd51a5c99e945e7431d34b5cb1a5"

func TestLoadIdentityFaults(t *testing.T) {
	dir := t.TempDir()
	machine := filepath.Join(dir, "machine-id")
	write(t, machine, strings.Repeat("a", 32))
	garbage := filepath.Join(dir, "garbage")
	if err := os.Mkdir(garbage, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(garbage, "node-id"), "a b\n")
	empty := filepath.Join(dir, "empty-machine-id")
	write(t, empty, "uninitialized\n")
	for name, o := range map[string]lease.IdentityOptions{
		"given with a blank":     {Given: "a b", CacheDir: dir},
		"given too long":         {Given: strings.Repeat("a", 254), CacheDir: dir},
		"stored garbage":         {CacheDir: garbage, MachineID: machine},
		"machine not set up yet": {CacheDir: filepath.Join(dir, "c"), MachineID: empty},
	} {
		id, _, err := lease.LoadIdentity(o)
		if err == nil {
			t.Errorf("%s: got %q", name, id)
		} else if text := err.Error(); o.CacheDir == garbage &&
			(!strings.Contains(text, filepath.Join(garbage, "node-id")) || !strings.Contains(text, "delete it")) {
			t.Errorf("%s: neither file nor remedy in %q", name, text)
		}
	}
	// A disk that takes nothing keeps no node from its work.
	o := lease.IdentityOptions{CacheDir: "/proc/weft-none", MachineID: machine}
	id, source, err := lease.LoadIdentity(o)
	again, _, twice := lease.LoadIdentity(o)
	if len(id) != 32 || id != again || source != lease.IdentityMachine || !errors.Is(err, lease.ErrNotStored) ||
		err.Error() != twice.Error() {
		t.Errorf("cannot be stored: %q from %s, %v, then %q, %v", id, source, err, again, twice)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOwns(t *testing.T) {
	four := lease.Self{Node: "me", PublicIP: netip.MustParseAddr("192.0.2.1")}
	six := lease.Self{Node: "me", PublicIPv6: netip.MustParseAddr("2001:db8::1")}
	dual := lease.Self{Node: "me", PublicIP: four.PublicIP, PublicIPv6: six.PublicIPv6}
	for _, tt := range []struct {
		self       lease.Self
		node, addr string
		want       lease.Ownership
	}{
		{four, "me", "192.0.2.1", lease.Ours},
		{four, "me", "192.0.2.9", lease.Ours},
		{four, "", "192.0.2.1", lease.Adoptable},
		{four, "", "192.0.2.9", lease.Foreign},
		{four, "you", "192.0.2.1", lease.Rival},
		{four, "you", "192.0.2.9", lease.Foreign},
		{dual, "you", "192.0.2.9,2001:db8::1", lease.Rival},
		{dual, "", "192.0.2.9,2001:db8::1", lease.Foreign},
		{six, "", "2001:db8::1", lease.Adoptable},
		{six, "", "192.0.2.9", lease.Foreign},
		{lease.Self{}, "", "192.0.2.9", lease.Foreign},
	} {
		if got := tt.self.Owns(leasetest.Record(t, "10.1.1.0/24", tt.node, tt.addr, 1).Attrs); got != tt.want {
			t.Errorf("%+v and node %q at %s: %s, want %s", tt.self, tt.node, tt.addr, got, tt.want)
		}
	}
}
