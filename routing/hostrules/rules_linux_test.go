package hostrules

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/lease"
	"weft/test/await"
	"weft/test/netns"
)

// shell runs lines of a shell in the namespace.
func shell(t *testing.T, lines string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", lines).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", lines, err, out)
	}
}

// each runs f in a namespace of its own for every firewall.
func each(t *testing.T, f func(*testing.T, flavour)) {
	for _, x := range flavours() {
		t.Run(x.name, func(t *testing.T) {
			inNamespace(t)
			f(t, x)
		})
	}
}

// In each firewall masquerade and forward are where they belong, what drops is in table weft, a second
// process changes nothing of masquerade and forward, and a cleanup leaves the host without a word of ours.
func TestRulesInPlace(t *testing.T) {
	each(t, func(t *testing.T, f flavour) {
		set := testSet("198.51.100.2", "198.51.100.1", "2001:db8:5::1")
		r := testRules(t, f, testConfig(f))
		apply(t, r, set)
		text := ruleset(t)
		for _, want := range []string{"table inet weft {", "chain overlay-input-10.42.0.0/16 {",
			"elements = { 198.51.100.1, 198.51.100.2 }",
			"elements = { 2001:db8:5::1 }", commentMasquerade, commentForward,
			"ip6 saddr fd42::/48 counter packets 0 bytes 0 drop"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is missing:\n%s", want, text)
			}
		}
		if got := strings.Contains(text, "flannel-ipv4"); got != (f.kind == kindNFTables) {
			t.Errorf("a table of flannel's: %t", got)
		}
		if got := strings.Contains(sh(t, "iptables-legacy-save"), "FLANNEL-FWD"); got !=
			(f.kind == kindIptablesLegacy) {
			t.Errorf("legacy chains: %t", got)
		}
		again := testRules(t, f, testConfig(f))
		apply(t, again, set)
		if now := ruleset(t); sorted(now) != sorted(text) || again.Status().Repaired != 0 || !again.Present() {
			t.Errorf("the next process changed it:\n%s", now)
		}
		planned, err := Remove(t.Context(), RemoveOptions{DryRun: true})
		if err != nil || sorted(ruleset(t)) != sorted(text) {
			t.Errorf("a dry run: %q, %v", planned, err)
		}
		removed, err := Remove(t.Context(), RemoveOptions{})
		if err != nil || fmt.Sprint(removed) != fmt.Sprint(planned) || len(removed) == 0 {
			t.Errorf("%q, planned %q, %v", removed, planned, err)
		}
		if now := ruleset(t); strings.Contains(now, "weft") || strings.Contains(now, "FLANNEL") ||
			strings.Contains(now, "flannel") {
			t.Errorf("left:\n%s", now)
		}
		if again, err := Remove(t.Context(), RemoveOptions{}); err != nil || len(again) != 0 {
			t.Errorf("the second time: %q, %v", again, err)
		}
	})
}

// send has n datagrams sent to the overlay's port of 127.0.0.1, and says how many arrive at ear.
func send(t *testing.T, ear *net.UDPConn, from string, n int) (arrived int) {
	t.Helper()
	c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)},
		&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8472})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range n {
		_, _ = c.Write([]byte("x")) // it may be dropped
	}
	for b := make([]byte, 9); ; arrived++ { // over the loopback they are there at once
		_ = ear.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := ear.Read(b); err != nil {
			return arrived
		}
	}
}

// What the rules drop they drop and count, and peers pass, also while the peers change.
func TestPacketsAreDropped(t *testing.T) {
	each(t, func(t *testing.T, f flavour) {
		sh(t, "ip address add 10.42.9.9/32 dev lo")
		c := testConfig(f)
		c.Guard.Underlay = "lo"
		r := testRules(t, f, c)
		apply(t, r, testSet("127.0.0.2"))
		ear, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8472})
		if err != nil {
			t.Fatal(err)
		}
		defer ear.Close()
		for from, want := range map[string]int{"127.0.0.2": 3, "127.0.0.3": 0, "10.42.9.9": 0} {
			if got := send(t, ear, from, 3); got != want {
				t.Errorf("%d of 3 from %s arrived, want %d", got, from, want)
			}
		}
		apply(t, r, testSet("127.0.0.2", "127.0.0.3"))
		if d := r.Status().Dropped; d.Strangers != 3 || d.Pods != 3 || d.Plain != 0 {
			t.Errorf("%+v", d)
		}
		if got := send(t, ear, "127.0.0.3", 3); got != 3 {
			t.Errorf("%d of 3 of a new peer arrived", got)
		}
		next := testRules(t, f, c)
		apply(t, next, testSet("127.0.0.2", "127.0.0.3"))
		if d := next.Status().Dropped; d != (Dropped{}) {
			t.Errorf("the next process begins with %+v", d)
		}
	})
}

// While the peers change all the time, no datagram of a peer that stays is dropped, and none of a stranger's
// passes.
func TestNoPacketMeetsHalfOfTheRules(t *testing.T) {
	inNamespace(t)
	f := flavours()[0]
	c := testConfig(f)
	c.Guard.Underlay = "lo"
	r := testRules(t, f, c)
	apply(t, r, testSet("127.0.0.1"))
	ear, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8472})
	if err != nil {
		t.Fatal(err)
	}
	defer ear.Close()
	var mouths [2]*net.UDPConn
	for i, from := range []string{"127.0.0.1", "127.0.0.2"} {
		if mouths[i], err = net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)},
			ear.LocalAddr().(*net.UDPAddr)); err != nil {
			t.Fatal(err)
		}
		defer mouths[i].Close()
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for b := make([]byte, 9); ; {
			select {
			case <-done:
				return
			default:
			}
			_, _ = mouths[1].Write([]byte("stranger")) // EPERM says that it is dropped
			if _, err := mouths[0].Write([]byte("peer")); err != nil {
				t.Error(err)
				return
			}
			_ = ear.SetReadDeadline(time.Now().Add(10 * time.Second))
			if n, err := ear.Read(b); err != nil || string(b[:n]) != "peer" {
				t.Errorf("%q, %v", b[:n], err)
				return
			}
		}
	})
	for i := range 20 {
		c.Guard.Port, c.NoMasquerade = 8472, nil
		if i%5 == 4 { // all is written anew
			r.Seal([]*Seal{nil, {Devices: []string{"x"}}}[i/5%2])
		}
		apply(t, r, testSet("127.0.0.1", fmt.Sprintf("198.51.100.%d", i+1)))
	}
	close(done)
	wg.Wait()
}

// disturbances are what others do to the rules.
func disturbances(f flavour) []string {
	const input = "inet weft overlay-input-10.42.0.0/16"
	all := []string{"nft delete table inet weft", "nft flush chain " + input, "nft add rule " +
		input + " accept",
		"nft delete element inet weft overlay-peers4-10.42.0.0/16 { 198.51.100.1 }", "nft flush ruleset"}
	switch f.kind {
	case kindNFTables:
		return append(all, "nft delete table ip flannel-ipv4",
			"nft flush chain ip flannel-ipv4 postrtg-10.42.0.0/16",
			"nft add rule ip6 flannel-ipv6 forward-fd42__/48 drop",
			"nft add chain ip flannel-ipv4 forward-10.42.0.0/16 { policy drop ; }")
	case kindIptablesNFT:
		return append(all, "iptables-nft -t nat -F", "iptables-nft -F", "iptables-nft -t nat -D FLANNEL-POSTRTG 3",
			"iptables-nft -t nat -I FLANNEL-POSTRTG -j ACCEPT")
	default:
		return append(all, "iptables-legacy -t nat -F", "iptables-legacy -F",
			"iptables-legacy -t nat -D FLANNEL-POSTRTG 3",
			"iptables-legacy -t nat -R FLANNEL-POSTRTG 3 -s 10.42.0.0/16 -j RETURN", "ip6tables-legacy -D FORWARD 1")
	}
}

// Whatever others do to the rules, Run puts them back.
func TestDriftIsUndone(t *testing.T) {
	each(t, func(t *testing.T, f flavour) {
		c := testConfig(f)
		c.Resync = time.Second
		r := testRules(t, f, c)
		apply(t, r, testSet("198.51.100.2", "198.51.100.1"))
		before := ruleset(t)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan string, 1)
		// Run works in this thread's namespace; so the disturbances come from another thread in it.
		beside := netns.Beside(t)
		go func() {
			defer cancel()
			_ = beside.Do(func() error {
				failed <- disturb(f, before, func() uint64 { return r.Status().Repaired })
				return nil
			})
		}()
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
		if why := <-failed; why != "" {
			t.Error(why)
		}
	})
}

// A repair that succeeds at the second try is counted, too.
func TestALateRepairIsCounted(t *testing.T) {
	inNamespace(t)
	f := flavours()[0]
	r := testRules(t, f, testConfig(f))
	apply(t, r, testSet("198.51.100.1"))
	sh(t, "nft flush chain inet weft overlay-input-10.42.0.0/16")
	sh(t, "nft add chain inet weft mine")
	// keeps the set from being deleted
	sh(t, "nft add rule inet weft mine ip saddr @overlay-peers4-10.42.0.0/16")
	if err := r.Apply(t.Context(), testSet("198.51.100.1")); err == nil || r.Status().Repaired != 0 {
		t.Fatalf("%v, %d repairs while the set is in use", err, r.Status().Repaired)
	}
	sh(t, "nft delete chain inet weft mine")
	apply(t, r, testSet("198.51.100.1"))
	if n := r.Status().Repaired; n != 1 {
		t.Errorf("%d repairs counted, want 1", n)
	}
}

// What cannot be looked at for want of descriptors stays as it was, and the fault is said.
func TestWithoutDescriptorsRulesStay(t *testing.T) {
	f := flavours()[0]
	r := testRules(t, f, testConfig(f))
	short, refused := fmt.Errorf("nftables table inet weft: socket: %w", unix.EMFILE),
		fmt.Errorf("socket: %w", unix.EPERM)
	for i, x := range []struct {
		err     error
		inPlace bool
	}{{short, false}, {nil, true}, {short, true}, {refused, false}, {short, false}, {nil, true}} {
		r.report(Status{}, kindNFTables, x.err)
		if st := r.Status(); st.InPlace != x.inPlace || (st.LastError == "") != (x.err == nil) {
			t.Errorf("report %d: %v: in place %v, %q", i, x.err, st.InPlace, st.LastError)
		}
	}
}

// disturb does each disturbance, and waits until its effect is gone and it is counted as repaired.
func disturb(f flavour, before string, repaired func() uint64) string {
	for _, line := range disturbances(f) {
		counted := repaired()
		if _, err := try(line); err != nil {
			return err.Error()
		}
		for deadline := time.Now().Add(await.Patience); ; time.Sleep(10 * time.Millisecond) {
			now, err := tryRuleset()
			if err == nil && sorted(now) == sorted(before) && repaired() > counted {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Sprintf("after %s: %v, %d repairs\n%s\nwant\n%s", line, err, repaired(), now, before)
			}
		}
	}
	return ""
}

// earlier are rules of an earlier run, and of a flannel before it with the same network.
const earlier = `
for x in nft legacy; do
	iptables-$x -t nat -N FLANNEL-POSTRTG
	iptables-$x -t nat -A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
	iptables-$x -t nat -A FLANNEL-POSTRTG -s 10.42.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE
	iptables-$x -t nat -A FLANNEL-POSTRTG -d 203.0.113.0/24 -m comment --comment "flanneld masq (weft)" -j RETURN
done
nft add table ip flannel-ipv4
nft add chain ip flannel-ipv4 postrtg '{ type nat hook postrouting priority srcnat ; }'
nft add rule ip flannel-ipv4 postrtg ip saddr 10.42.0.0/16 return comment '"flanneld masq (weft) 203.0.113.0"'
`

// What an earlier run or flannel left is replaced, in whichever firewall it is; what only has a name like it
// stays.
func TestEarlierRunsGo(t *testing.T) {
	each(t, func(t *testing.T, f flavour) {
		shell(t, earlier)
		apply(t, testRules(t, f, testConfig(f)), testSet("198.51.100.1"))
		text := ruleset(t)
		for _, old := range []string{"203.0.113.0", `"flanneld masq"`} {
			if strings.Contains(text, old) {
				t.Errorf("%s is left:\n%s", old, text)
			}
		}
	})
}

// While something of ours does not stand, what an earlier run left stays.
func TestNothingGoesBeforeAllStands(t *testing.T) {
	inNamespace(t)
	f := flavours()[0]
	apply(t, testRules(t, f, testConfig(f)), testSet("198.51.100.1"))
	shell(t, earlier)
	sh(t, "nft add chain inet weft mine")
	// keeps the set from being deleted
	sh(t, "nft add rule inet weft mine ip saddr @overlay-peers4-10.42.0.0/16")
	r := testRules(t, f, testConfig(f))
	const old = "203.0.113.0"
	if err := r.Apply(t.Context(), testSet("198.51.100.1")); err == nil || !strings.Contains(ruleset(t), old) {
		t.Errorf("%v, and the rules are\n%s", err, ruleset(t))
	}
	sh(t, "nft delete chain inet weft mine")
	apply(t, r, testSet("198.51.100.1"))
	if strings.Contains(ruleset(t), old) {
		t.Errorf("left:\n%s", ruleset(t))
	}
}

// --rules of weft cleanup takes what drops, and leaves what packets go by.
func TestOnlyWhatDropsGoes(t *testing.T) {
	each(t, func(t *testing.T, f flavour) {
		r := testRules(t, f, testConfig(f))
		apply(t, r, testSet("198.51.100.1"))
		lines, err := Remove(t.Context(), RemoveOptions{Port: true})
		if err != nil || len(lines) == 0 {
			t.Errorf("%q, %v", lines, err)
		}
		text := ruleset(t)
		if strings.Contains(text, "overlay-") || !strings.Contains(text, commentForward) {
			t.Errorf("left:\n%s", text)
		}
		if again, err := Remove(t.Context(), RemoveOptions{Port: true}); err != nil || len(again) != 0 {
			t.Errorf("the second time: %q, %v", again, err)
		}
	})
}

// A living flannel makes rules of its own beside weft's. Then --rules takes weft's, which it left before.
func TestOurRulesGoWhereAFlannelLives(t *testing.T) {
	each(t, func(t *testing.T, f flavour) {
		apply(t, testRules(t, f, testConfig(f)), testSet("198.51.100.1"))
		own := func() int { return strings.Count(ruleset(t), "(weft)") }
		all := own()
		if _, err := Remove(t.Context(), RemoveOptions{Port: true}); err != nil || all == 0 || own() != all {
			t.Errorf("without a flannel: %v, %d of %d rules are left", err, own(), all)
		}
		flannels := `
for v in "ip saddr 10.42.0.0/16" "ip6 saddr fd42::/48"; do
	for x in "forward filter forward filter accept" "postrtg nat postrouting srcnat masquerade"; do
		set -- $v $x
		table="$1 flannel-$(echo $1 | sed 's/ip$/ipv4/; s/ip6/ipv6/')"
		nft add chain $table $4 "{ type $5 hook $6 priority $7 ; }"
		nft add rule $table $4 $v $8 comment '"flanneld of its own"'
	done
done
`
		if f.kind != kindNFTables {
			flannels = strings.NewReplacer("KIND", strings.TrimPrefix(f.name, "iptables-")).Replace(`
for v in "iptables-KIND 10.42.0.0/16" "ip6tables-KIND fd42::/48"; do
	set -- $v
	$1 -A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
	$1 -A FLANNEL-FWD -s $2 -m comment --comment "flanneld forward" -j ACCEPT
	$1 -t nat -A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
	$1 -t nat -A FLANNEL-POSTRTG -s $2 -m comment --comment "flanneld masq" -j MASQUERADE
done
`)
		}
		shell(t, flannels)
		its := func() int {
			return len(regexp.MustCompile(`"flanneld (forward|masq|of its own)"`).FindAllString(ruleset(t), -1))
		}
		before := its()
		if _, err := Remove(t.Context(), RemoveOptions{Port: true}); err != nil || own() != 0 {
			t.Errorf("beside a flannel: %v, left:\n%s", err, ruleset(t))
		}
		if n := its(); n != before || n == 0 {
			t.Errorf("of flannel's %d rules %d are left:\n%s", before, n, ruleset(t))
		}
	})
}

// Whether rules that drop are there is known while another holds the lock, who may wait for iptables.
func TestPresentWaitsForNobody(t *testing.T) {
	inNamespace(t)
	f := flavours()[0]
	r := testRules(t, f, testConfig(f))
	apply(t, r, testSet("198.51.100.1"))
	r.mu.Lock()
	late := time.AfterFunc(await.Patience, r.mu.Unlock)
	if !r.Present() {
		t.Error("they are not there")
	}
	if !late.Stop() {
		t.Fatal("it waits for the lock")
	}
	r.mu.Unlock()
}

// A living flannel's rules stay, and --flannel takes them too.
func TestFlannelsStay(t *testing.T) {
	inNamespace(t)
	const flannel = `
for x in nft legacy; do
	iptables-$x -N FLANNEL-FWD
	iptables-$x -A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
	iptables-$x -A FLANNEL-FWD -s 10.99.0.0/16 -j ACCEPT
done
nft add table ip6 flannel-ipv6
nft add chain ip6 flannel-ipv6 forward '{ type filter hook forward priority filter ; }'
nft add rule ip6 flannel-ipv6 forward ip6 saddr fd99::/48 accept
`
	shell(t, flannel)
	before := ruleset(t)
	f := flavours()[2]
	apply(t, testRules(t, f, testConfig(f)), testSet("198.51.100.1"))
	if text := ruleset(t); strings.Count(text, "-s 10.99.0.0/16 -j ACCEPT") != 2 {
		t.Errorf("a living flannel's rules went:\n%s", text)
	}
	if _, err := Remove(t.Context(), RemoveOptions{}); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(before) {
		if now := ruleset(t); strings.Contains(line, "10.99.0.0") && !strings.Contains(now, line) {
			t.Errorf("%q went with ours:\n%s", line, now)
		}
	}
	if _, err := Remove(t.Context(), RemoveOptions{Flannel: true}); err != nil ||
		strings.Contains(ruleset(t), "FLANNEL") {
		t.Errorf("%v\n%s", err, ruleset(t))
	}
}

// Two networks on one host have their rules side by side: none repairs what the other has, and one's cleanup
// leaves the other's.
func TestTwoNetworksSideBySide(t *testing.T) {
	each(t, func(t *testing.T, f flavour) {
		other := testConfig(f)
		other.Network.Network, other.Network.IPv6Network = netip.MustParsePrefix("10.99.0.0/16"),
			netip.MustParsePrefix("fd99::/48")
		other.Guard.Port, other.Blackhole = 8473, true
		theirs := testSet("198.51.100.9")
		theirs.Own.Subnets = lease.Subnets{V4: netip.MustParsePrefix("10.99.7.0/24"),
			V6: netip.MustParsePrefix("fd99:0:0:7::/64")}
		c := testConfig(f)
		c.Blackhole = true
		one, two := testRules(t, f, c), testRules(t, f, other)
		for range 3 {
			apply(t, one, testSet("198.51.100.1"))
			apply(t, two, theirs)
		}
		together := ruleset(t)
		for range 3 {
			apply(t, one, testSet("198.51.100.1"))
			apply(t, two, theirs)
		}
		if now := ruleset(t); now != together || one.Status().Repaired+two.Status().Repaired != 0 {
			t.Errorf("%d and %d repairs:\n%s", one.Status().Repaired, two.Status().Repaired, now)
		}
		for _, word := range []string{"10.42.0.0/16", "10.99.0.0/16", "fd42::/48", "fd99::/48", "8472", "8473"} {
			if !strings.Contains(together, word) {
				t.Errorf("nothing about %s:\n%s", word, together)
			}
		}
		if routes := sh(t, "ip route"); !strings.Contains(routes, "blackhole 10.42.7.0/24") ||
			!strings.Contains(routes, "blackhole 10.99.7.0/24") {
			t.Errorf("%s", routes)
		}
		if got := OtherNetworks(c.Network.Networks()); fmt.Sprint(got) != "[10.99.0.0/16]" {
			t.Errorf("others: %q", got)
		}
		for _, o := range []RemoveOptions{{Port: true}, {}, {Flannel: true}} {
			o.Networks = c.Network.Networks()
			if _, err := Remove(t.Context(), o); err != nil {
				t.Error(err)
			}
		}
		if now := ruleset(t); strings.Contains(now, "10.42.0.0") || strings.Contains(now, "8472") ||
			!strings.Contains(now, "10.99.0.0/16") {
			t.Errorf("after the first one's cleanup:\n%s", now)
		}
		if apply(t, two, theirs); two.Status().Repaired != 0 {
			t.Error("the first one's cleanup took rules of the second")
		}
		if _, err := Remove(t.Context(), RemoveOptions{Networks: other.Network.Networks()}); err != nil ||
			strings.Contains(ruleset(t), "weft") {
			t.Errorf("after both: %v\n%s", err, ruleset(t))
		}
	})
}

// An earlier weft keeps the rules of all networks in flannel's own chains, told apart by the end of their
// comments. Those of another network stay there, and neither repairs what the other has.
func TestAnEarlierWeftsOtherNetwork(t *testing.T) {
	inNamespace(t)
	shell(t, `
nft add table ip flannel-ipv4
nft add chain ip flannel-ipv4 forward '{ type filter hook forward priority filter ; }'
nft add chain ip flannel-ipv4 postrtg '{ type nat hook postrouting priority srcnat ; }'
for n in 10.42.0.0/16 10.99.0.0/16; do
	nft add rule ip flannel-ipv4 forward ip saddr $n accept comment "\"flanneld forward (weft) $n\""
	nft add rule ip flannel-ipv4 postrtg ip saddr $n masquerade comment "\"flanneld masq (weft) $n\""
done
`)
	others := func() int { return strings.Count(ruleset(t), `(weft) 10.99.0.0/16"`) }
	chain := func(name string) string { return sh(t, "nft list chain ip flannel-ipv4 "+name) }
	f := flavours()[0]
	r := testRules(t, f, testConfig(f))
	apply(t, r, testSet("198.51.100.1"))
	if old := chain("forward") + chain("postrtg"); others() != 2 || strings.Contains(old, "10.42.0.0") {
		t.Errorf("flannel's chains:\n%s", old)
	}
	new := chain("forward-10.42.0.0/16") + chain("postrtg-10.42.0.0/16")
	for line := range strings.Lines(new) {
		if strings.Contains(line, "comment") && !strings.Contains(line, `(weft) 10.42.0.0/16"`) {
			t.Errorf("an earlier weft would take for its own: %s", line)
		}
	}
	shell(t, `nft add rule ip flannel-ipv4 forward ip daddr 10.99.0.0/16 accept comment \
		'"flanneld forward (weft) 10.99.0.0/16"'`)
	if apply(t, r, testSet("198.51.100.1")); others() != 3 || r.Status().Repaired != 0 {
		t.Errorf("%d repairs:\n%s", r.Status().Repaired, ruleset(t))
	}
	if _, err := Remove(t.Context(), RemoveOptions{Networks: testConfig(f).Network.Networks()}); err != nil ||
		others() != 3 || strings.Contains(ruleset(t), "10.42.0.0") {
		t.Errorf("after a cleanup: %v\n%s", err, ruleset(t))
	}
	if _, err := Remove(t.Context(), RemoveOptions{}); err != nil || strings.Contains(ruleset(t), "flannel") {
		t.Errorf("after a cleanup of all: %v\n%s", err, ruleset(t))
	}
}

// A network that the node was in before is its own.
func TestFormerNetworksGo(t *testing.T) {
	each(t, func(t *testing.T, f flavour) {
		apply(t, testRules(t, f, testConfig(f)), testSet("198.51.100.1"))
		c := testConfig(f)
		c.Former = c.Network.Networks()
		c.Network.Network, c.Network.IPv6Network = netip.MustParsePrefix("10.99.0.0/16"),
			netip.MustParsePrefix("fd99::/48")
		set := testSet("198.51.100.1")
		set.Own.Subnets = lease.Subnets{V4: netip.MustParsePrefix("10.99.7.0/24"),
			V6: netip.MustParsePrefix("fd99:0:0:7::/64")}
		apply(t, testRules(t, f, c), set)
		if text := ruleset(t); strings.Contains(text, "10.42.0.0") || strings.Contains(text, "fd42::") {
			t.Errorf("left:\n%s", text)
		}
	})
}

// Rules of a seal stand whatever others accept, count what they drop, and go when they are no longer wanted.
func TestSealInTheKernel(t *testing.T) {
	inNamespace(t)
	sh(t, "ip link add eth0 type veth peer name far")
	sh(t, "ip link set far up")
	sh(t, "ip address add 192.0.2.1/24 dev eth0")
	sh(t, "ip link set eth0 up")
	sh(t, "ip route add 10.42.0.0/16 via 192.0.2.9 dev eth0")
	sh(t, "iptables-legacy -t mangle -A POSTROUTING -j ACCEPT")
	f := flavours()[2]
	c := testConfig(f)
	r := testRules(t, f, c)
	apply(t, r, testSet("192.0.2.8"))
	if there := r.Present(); !r.Seal(testSeal()) || r.Seal(testSeal()) || !there || r.Present() {
		t.Errorf("rules are there: %t, and with a seal %t", there, r.Present())
	}
	if apply(t, r, testSet("192.0.2.8")); !r.Present() {
		t.Error("the seal is not there")
	}
	for _, to := range []string{"10.42.8.8:9", "10.42.9.9:9", "10.42.7.9:9"} { // to the first it goes as it is
		out, err := net.Dial("udp4", to)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = out.Write([]byte("x")) // it may be dropped
		_ = out.Close()
	}
	if apply(t, r, testSet("192.0.2.8")); r.Status().Dropped.Plain != 2 {
		t.Errorf("%+v, want two in plain", r.Status().Dropped)
	}
	next := testRules(t, f, c)
	if next.Seal(testSeal()); !next.Present() {
		t.Error("the next process does not see the seal")
	}
	sh(t, "nft flush chain inet weft sealed-in-10.42.0.0/16")
	sh(t, "nft flush chain inet weft sealed-out-10.42.0.0/16")
	if next.Present() {
		t.Error("without its rules the seal is there")
	}
	next.Seal(nil)
	if apply(t, next, testSet("192.0.2.8")); strings.Contains(ruleset(t), "sealed") {
		t.Errorf("left:\n%s", ruleset(t))
	}
}

// A table that cannot be changed does not disturb those that can, however often it is tried.
func TestATableThatIsRefused(t *testing.T) {
	for _, f := range flavours()[1:] {
		t.Run(f.name, func(t *testing.T) {
			inNamespace(t)
			r := testRules(t, f, testConfig(f))
			i := r.accepts[slices.IndexFunc(r.accepts, func(a accepting) bool {
				return a.kind == f.kind
			})].firewall.(*iptables)
			found, err := i.find(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			path := t.TempDir() + "/restore"
			netns.Script(t, path, fmt.Sprintf("#!/bin/sh\nall=$(cat)\ncase $all in *'*nat'*) exit 1 ;; esac\nprintf "+
				"'%%s\\n' \"$all\" | %s \"$@\"\n", found.restore))
			found.restore, i.tools = path, &found
			for try := range 3 {
				if err := r.Apply(t.Context(), testSet("198.51.100.1")); err == nil || r.Status().InPlace {
					t.Fatal("a table was refused, and nobody says so")
				}
				if listing := sh(t, f.name+" -S FORWARD"); strings.Count(listing, " -j FLANNEL-") != 1 {
					t.Errorf("after %d tries:\n%s", try+1, listing)
				}
			}
		})
	}
}

// Thousands of peers fit into one transaction, and change by difference.
func TestManyPeers(t *testing.T) {
	inNamespace(t)
	var all []string
	for i := range 6000 {
		all = append(all, fmt.Sprintf("198.51.%d.%d", i/250, i%250+1), fmt.Sprintf("2001:db8:5::%x", i+1))
	}
	f := flavours()[0]
	r := testRules(t, f, testConfig(f))
	apply(t, r, testSet(all...))
	handle := sh(t, "nft -a list chain inet weft overlay-input-10.42.0.0/16")
	apply(t, r, testSet(all[2:]...))
	text := ruleset(t)
	if !strings.Contains(text, "198.51.23.250") || !strings.Contains(text, "2001:db8:5::1770") ||
		strings.Contains(text, "198.51.0.1,") {
		t.Error("the peers are not those of the last set")
	}
	if now := sh(t, "nft -a list chain inet weft overlay-input-10.42.0.0/16"); now != handle {
		t.Errorf("rules were made anew:\n%s", now)
	}
}

// Who may drop is said by hook, with the command of who manages it, and weft's own tables are not suspected.
func TestSuspects(t *testing.T) {
	inNamespace(t)
	f := flavours()[0]
	apply(t, testRules(t, f, testConfig(f)), testSet("198.51.100.1"))
	for _, line := range []string{"iptables-nft -P FORWARD DROP", "ip6tables-legacy -P INPUT DROP",
		"nft add table inet theirs",
		"nft add chain inet theirs c { type filter hook output priority 0 ; policy drop ; }",
		"nft add table inet firewalld",
		"nft add chain inet firewalld filter_INPUT { type filter hook input priority 10 ; }",
		"nft add chain inet theirs in { type filter hook input priority 0 ; }",
		"nft add rule inet theirs in udp dport 53 accept", "nft add rule inet theirs in counter reject"} {
		sh(t, line)
	}
	got, err := Suspects(t.Context())
	said := map[string]string{}
	for _, s := range got {
		said[s.Hook+" "+s.Table] = s.Allow(8285, 0, "flannel0")
	}
	for key, want := range map[string]string{
		"forward ip filter": "iptables -I FORWARD -i flannel0 -j ACCEPT; iptables -I FORWARD -o " +
			"flannel0 -j ACCEPT",
		"input filter (legacy iptables)": "ip6tables-legacy -I INPUT -p udp --dport 8285 -j ACCEPT",
		"output inet theirs":             "nft insert rule inet theirs c udp dport 8285 accept",
		"input inet theirs":              "nft insert rule inet theirs in udp dport 8285 accept",
		"input inet firewalld":           "firewall-cmd --permanent --add-port=8285/udp && firewall-cmd --reload",
	} {
		if said[key] != want {
			t.Errorf("%s: %q, want %q", key, said[key], want)
		}
	}
	if err != nil || len(got) != 5 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A rule that drops everything is found with its place, whether a rule before it may accept, and whether the
// one that accepts is behind it; and so is one that has dropped something.
func TestSuspectRules(t *testing.T) {
	inNamespace(t)
	f := flavours()[1]
	apply(t, testRules(t, f, testConfig(f)), testSet("198.51.100.1"))
	for _, step := range []struct {
		line        string
		place       int
		sure, ahead bool
		dropped     uint64
	}{
		{"iptables-nft -A FORWARD -s 192.0.2.0/24 -j DROP", 0, false, false, 0},
		{"iptables-nft -A FORWARD -s 192.0.2.0/24 -j DROP -c 7 700", 3, false, false, 7},
		{"iptables-nft -A FORWARD -j REJECT", 4, false, false, 0},
		{"iptables-nft -I FORWARD -m comment --comment mine -j DROP", 1, true, true, 0},
		{"iptables-nft -I FORWARD -p udp -j DROP", 2, true, true, 0},
		{"iptables-nft -I FORWARD -p udp -j ACCEPT", 3, false, true, 0},
	} {
		sh(t, step.line)
		got, err := Suspects(t.Context())
		if err != nil || (len(got) > 0) != (step.place > 0) || len(got) > 0 && (got[0].Rule != step.place ||
			got[0].Sure != step.sure || got[0].Ahead != step.ahead || got[0].Dropped != step.dropped) {
			t.Errorf("after %s: %+v, %v", step.line, got, err)
		}
	}
}

// Rules of legacy iptables drop what weft's rules of another flavour have accepted, and nft does not show
// them.
func TestSuspectRulesOfLegacyIptables(t *testing.T) {
	inNamespace(t)
	f := flavours()[1]
	apply(t, testRules(t, f, testConfig(f)), testSet("198.51.100.1"))
	sh(t, "iptables-legacy -N FLANNEL-FWD")
	sh(t, "iptables-legacy -N theirs")
	for _, step := range []struct{ line, want string }{
		{"iptables-legacy -A FORWARD -s 192.0.2.0/24 -j DROP", ""},
		{"iptables-legacy -A FORWARD -s 192.0.2.0/24 -j DROP -c 7 700", "forward 2 false true 7 0"},
		{"iptables-legacy -A FORWARD -j DROP", "forward 3 true true 0 0"},
		{"iptables-legacy -I FORWARD -p tcp -j ACCEPT", "forward 4 false true 0 0"},
		{"iptables-legacy -I FORWARD -j FLANNEL-FWD", "forward 5 false false 0 0"},
		{"iptables-legacy -F FORWARD", ""},
		{"iptables-legacy -P FORWARD DROP", "forward 0 false true 0 0"},
		{"iptables-legacy -A FORWARD -j FLANNEL-FWD", "forward 0 false false 0 0"},
		{"iptables-legacy -P FORWARD ACCEPT", ""},
		{"iptables-legacy -A INPUT -j theirs", ""},
		{"iptables-legacy -A theirs -p udp --dport 8285 -j DROP", "input 0 false false 0 1"},
		{"iptables-nft -A INPUT -p udp --dport 8285 -j DROP", "input 0 false false 0 1"},
		{"iptables-nft -A INPUT -p udp --dport 8285 -j DROP -c 7 700",
			"input 2 false false 7 0, input 0 false false 0 1"},
	} {
		sh(t, step.line)
		got, err := Suspects(t.Context())
		var said []string
		for _, s := range got {
			said = append(said, fmt.Sprint(s.Hook, " ", s.Rule, s.Sure, s.Ahead, s.Dropped, s.Some))
		}
		if err != nil || strings.Join(said, ", ") != step.want {
			t.Errorf("after %s: %q, want %q: %+v, %v", step.line, said, step.want, got, err)
		}
	}
}

// A verdict map may accept, and a rule that has dropped something hides no policy.
func TestSuspectRulesBesideOthers(t *testing.T) {
	inNamespace(t)
	sh(t, "nft add table inet theirs")
	sh(t, "nft add chain inet theirs vm { type filter hook input priority 0 ; }")
	sh(t, "nft add rule inet theirs vm ct state vmap { established : accept, invalid : drop }")
	sh(t, "nft add rule inet theirs vm drop")
	sh(t, "iptables-nft -P FORWARD DROP")
	sh(t, "iptables-nft -A FORWARD -s 192.0.2.0/24 -j DROP -c 7 700")
	got, err := Suspects(t.Context())
	var said []string
	for _, s := range got {
		said = append(said, fmt.Sprintf("%s rule %d sure %t dropped %d", s.Hook, s.Rule, s.Sure, s.Dropped))
	}
	slices.Sort(said)
	want := []string{"forward rule 0 sure false dropped 0", "forward rule 1 sure false dropped 7",
		"input rule 2 sure false dropped 0"}
	if err != nil || !slices.Equal(said, want) {
		t.Errorf("%q, %v, want %q", said, err, want)
	}
}

// Without nf_tables a note says that nothing is guarded, and what must not leave in plain is a fault.
func TestWithoutNFTables(t *testing.T) {
	r := New(Config{Network: dualStack(false), Logger: slog.New(slog.DiscardHandler)})
	v4, v6 := desired(r.cfg, testSet(), Guard{Port: 8285}, true)
	for _, sealed := range []bool{false, true} {
		x := &round{}
		r.withoutDrops(x, v4, v6, sealed)
		if (len(x.faults) > 0) != sealed || (len(x.st.Notes) > 0) == sealed {
			t.Errorf("sealed %t: %v %q", sealed, x.faults, x.st.Notes)
		}
	}
}
