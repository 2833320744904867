package hostlocal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
)

// program is Debian's host-local.
const program = "/usr/lib/cni/host-local"

// plugin calls the real host-local for h, and returns the addresses that it gives.
func plugin(s Store, command string, h Holder, ranges string) ([]netip.Prefix, error) {
	cmd := exec.Command(program)
	cmd.Env = []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + h.Container, "CNI_IFNAME=" + h.Interface,
		"CNI_NETNS=/nowhere", "CNI_PATH=/usr/lib/cni"}
	cmd.Stdin = bytes.NewBufferString(
		fmt.Sprintf(
			`{"cniVersion":"1.0.0","name":%q,"type":"x","ipam":{"type":"host-local","dataDir":%q,"ranges":%s}}`,
			s.Network, s.Dir, ranges))
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("host-local %s %s: %w: %s", command, h, err, out)
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if command == "ADD" {
		err = json.Unmarshal(out, &result)
	}
	var got []netip.Prefix
	for _, ip := range result.IPs {
		got = append(got, ip.Address)
	}
	return got, err
}

// TestWithTheRealPlugin has host-local and this package use one store in turns, and then both at once.
func TestWithTheRealPlugin(t *testing.T) {
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: apt-get install containernetworking-plugins", err)
	}
	subnets := prefixes("10.9.3.0/26", "fd42:0:0:3::/64")
	const ranges = `[[{"subnet":"10.9.3.0/26"}],[{"subnet":"fd42:0:0:3::/64"}]]`
	s := Store{t.TempDir(), "net"}
	ours := func(h Holder) ([]netip.Prefix, error) {
		a, err := s.Allocate(t.Context(), h, subnets)
		return a.Addresses, err
	}
	theirs := func(h Holder) ([]netip.Prefix, error) { return plugin(s, "ADD", h, ranges) }

	for i, next := range []func(Holder) ([]netip.Prefix, error){ours, theirs, theirs, ours, ours, theirs} {
		want := prefixes(fmt.Sprintf("10.9.3.%d/26", i+2), fmt.Sprintf("fd42:0:0:3::%x/64", i+2))
		if got, err := next(Holder{fmt.Sprint("c", i), "eth0"}); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%d: got %v, %v, want %v", i, got, err, want)
		}
	}
	c0, c1 := Holder{"c0", "eth0"}, Holder{"c1", "eth0"}
	if _, err := plugin(s, "CHECK", c0, ranges); err != nil {
		t.Errorf("the plugin does not find ours: %v", err)
	}
	if got, err := s.Lookup(c1); err != nil || !slices.Equal(got, addrs("10.9.3.3", "fd42:0:0:3::3")) {
		t.Errorf("we do not find the plugin's: %v, %v", got, err)
	}
	if got, err := theirs(c0); err == nil {
		t.Errorf("the plugin gives %v to one of ours again", got)
	}
	if _, err := plugin(s, "DEL", c0, ranges); err != nil {
		t.Error(err)
	}
	if got, err := s.Lookup(c0); err != nil || len(got) > 0 {
		t.Errorf("ours, which the plugin released: %v, %v", got, err)
	}
	if _, err := s.Release(t.Context(), c1); err != nil {
		t.Error(err)
	}
	if _, err := plugin(s, "CHECK", c1, ranges); err == nil {
		t.Error("the plugin still finds what we released")
	}

	s.Network = "crowd"
	const each = 30 // 60 together, and the subnet has 61 for pods
	type got struct {
		list []netip.Prefix
		err  error
	}
	results := make([]got, 2*each)
	var wg sync.WaitGroup
	for i := range results {
		next := ours
		if i%2 == 1 {
			next = theirs
		}
		wg.Go(func() { results[i].list, results[i].err = next(Holder{fmt.Sprint("c", i), "eth0"}) })
	}
	wg.Wait()
	seen := map[netip.Prefix]int{}
	for i, r := range results {
		if r.err != nil || len(r.list) != 2 {
			t.Errorf("%d: %v, %v", i, r.list, r.err)
		}
		for _, p := range r.list {
			if other, twice := seen[p]; twice {
				t.Errorf("%s is given to %d and %d", p, other, i)
			}
			seen[p] = i
		}
	}
	if _, err := theirs(Holder{"last", "eth0"}); err != nil {
		t.Errorf("one is free: %v", err)
	}
	_, errOurs := ours(Holder{"more", "eth0"})
	_, errTheirs := theirs(Holder{"more", "eth0"})
	if errOurs == nil || errTheirs == nil {
		t.Errorf("the subnet is full: ours %v, theirs %v", errOurs, errTheirs)
	}
	for i := range results { // each releases the other's
		h := Holder{fmt.Sprint("c", i), "eth0"}
		wg.Go(func() {
			if i%2 == 0 {
				_, results[i].err = plugin(s, "DEL", h, ranges)
			} else {
				_, results[i].err = s.Release(t.Context(), h)
			}
		})
	}
	wg.Wait()
	for i, r := range results {
		if r.err != nil {
			t.Errorf("release %d: %v", i, r.err)
		}
	}
	if left, err := Holders(s.Dir, "crowd"); err != nil || !slices.Equal(left, []Holder{{"last", "eth0"}}) {
		t.Errorf("left %v, %v", left, err)
	}
}
