package hostrules

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/netns"
)

// disturbances are what others do to the rules of each flavour.
func disturbances(f flavour) []string {
	switch f.kind {
	case kindNFTables:
		return []string{"nft delete table ip flannel-ipv4", "nft flush chain ip flannel-ipv4 postrtg", "nft flush ruleset",
			"nft delete element ip flannel-ipv4 overlay-peers { 198.51.100.1 }", "nft add rule ip6 flannel-ipv6 forward drop",
			"nft add chain ip flannel-ipv4 forward { policy drop ; }"}
	case kindIptablesNFT:
		return []string{"iptables-nft -t nat -F", "iptables-nft -F", "iptables-nft -t nat -D FLANNEL-POSTRTG 3", "nft delete table ip mangle",
			"iptables-nft -t nat -I FLANNEL-POSTRTG -j ACCEPT", "ip6tables-nft -t mangle -F WEFT-PEERS", "nft flush ruleset"}
	default:
		return []string{"iptables-legacy -t nat -F", "iptables-legacy -F", "iptables-legacy -t nat -D FLANNEL-POSTRTG 3",
			"iptables-legacy -t nat -R FLANNEL-POSTRTG 3 -s 10.42.0.0/16 -j RETURN", "ip6tables-legacy -t mangle -F WEFT-PEERS",
			"iptables-legacy -D FORWARD 1"}
	}
}

// Whatever others do to the rules, Run puts them back as they were.
func TestDriftIsUndone(t *testing.T) {
	for _, f := range flavours() {
		t.Run(f.name, func(t *testing.T) {
			inNamespace(t)
			c := testConfig(f)
			c.Resync = time.Second
			r := testRules(t, f, c)
			apply(t, r, testSet("198.51.100.2", "198.51.100.1"))
			before := listing(t, f)
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
			if n := r.Status().Repaired; n < uint64(len(disturbances(f))) {
				t.Errorf("%d repairs are counted", n)
			}
		})
	}
}

// disturb does each disturbance, and waits until its effect is gone and it is counted as repaired: if the next one
// came before the repair was inspected, the two would be mended together and counted as one.
func disturb(f flavour, before string, repaired func() uint64) string {
	for _, line := range disturbances(f) {
		counted := repaired()
		if _, err := try(line); err != nil {
			return err.Error()
		}
		deadline := time.Now().Add(await.Patience)
		for {
			now, err := tryListing(f)
			if err == nil && sortedLines(now) == sortedLines(before) && repaired() > counted {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Sprintf("after %s: %v\n%s\nwant\n%s", line, err, now, before)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return ""
}

// Rules of others beside ours stay as they are, and in their order.
func TestForeignRulesAreNotTouched(t *testing.T) {
	for _, f := range flavours() {
		t.Run(f.name, func(t *testing.T) {
			inNamespace(t)
			for _, line := range f.foreign {
				sh(t, line)
			}
			before := listing(t, f)
			r := testRules(t, f, testConfig(f))
			apply(t, r, testSet("198.51.100.1"))
			with := listing(t, f)
			for line := range strings.Lines(before) {
				if !strings.Contains(with, line) {
					t.Errorf("%q is gone", line)
				}
			}
			if lines, err := Remove(t.Context(), RemoveOptions{}); err != nil || len(lines) == 0 {
				t.Errorf("%q, %v", lines, err)
			}
			// Empty tables of iptables stay, since nothing tells whose they are.
			after := listing(t, f)
			for _, own := range []string{"FLANNEL", "WEFT", "flannel", "weft"} {
				if strings.Contains(after, own) {
					t.Errorf("%s is left:\n%s", own, after)
				}
			}
			for line := range strings.Lines(before) {
				if !strings.Contains(after, line) {
					t.Errorf("%q went with ours", line)
				}
			}
			if again, err := Remove(t.Context(), RemoveOptions{}); err != nil || len(again) != 0 {
				t.Errorf("the second time: %q, %v", again, err)
			}
		})
	}
}

// flannels are rules as flannel leaves them: those of another network in iptables, and its tables in nftables.
func flannels() []string {
	return []string{
		"iptables-%[1]s -t nat -N FLANNEL-POSTRTG",
		"iptables-%[1]s -t nat -A POSTROUTING -m comment --comment flanneld-masq -j FLANNEL-POSTRTG",
		"iptables-%[1]s -t nat -A FLANNEL-POSTRTG -s 10.99.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE",
		"iptables-%[1]s -N FLANNEL-FWD", "iptables-%[1]s -A FORWARD -j FLANNEL-FWD", "iptables-%[1]s -A FORWARD -j FLANNEL-FWD",
		"iptables-%[1]s -A FLANNEL-FWD -s 10.99.0.0/16 -j ACCEPT",
	}
}

// Rules that flannel left, or an earlier run with another configuration, are replaced, in whichever firewall they are.
func TestLeftoversGo(t *testing.T) {
	for _, f := range flavours() {
		t.Run(f.name, func(t *testing.T) {
			inNamespace(t)
			for _, line := range flannels() {
				sh(t, fmt.Sprintf(line, "nft"))
				sh(t, fmt.Sprintf(line, "legacy"))
			}
			sh(t, "nft add table ip flannel-ipv4")
			sh(t, "nft add chain ip flannel-ipv4 forward { type filter hook forward priority filter ; }")
			sh(t, "nft add rule ip flannel-ipv4 forward ip saddr 10.99.0.0/16 accept")
			r := testRules(t, f, testConfig(f))
			apply(t, r, testSet("198.51.100.1"))
			for _, other := range flavours() {
				text := listing(t, other)
				if strings.Contains(text, "10.99.0.0") {
					t.Errorf("%s has the other network:\n%s", other.name, text)
				}
				// nft lists what iptables-nft has as well.
				ours := strings.Contains(text, "flannel-ipv4") || other.kind != kindNFTables && strings.Contains(text, "FLANNEL-")
				if ours != (other.kind == f.kind) {
					t.Errorf("%s has rules of ours: %t\n%s", other.name, ours, text)
				}
			}
			// The rules that the config and the flags no longer ask for go too.
			c := testConfig(f)
			c.Masquerade, c.NoMasquerade = false, nil
			c.Guard = Guard{}
			c.Network.EnableIPv6 = false
			r = testRules(t, f, c)
			apply(t, r, testSet())
			text := listing(t, f)
			if strings.Contains(text, "masq") || strings.Contains(text, "8472") || strings.Contains(text, "fd42::/48") || !strings.Contains(text, overlay4) {
				t.Errorf("after less is wanted:\n%s", text)
			}
		})
	}
}

// Where iptables drops what nobody accepts, it gets our accepting rules too, whichever firewall has the others.
func TestForwardPolicyDropIsMet(t *testing.T) {
	for _, other := range []string{"nft", "legacy"} {
		for _, f := range flavours() {
			t.Run(f.name+" beside "+other, func(t *testing.T) {
				inNamespace(t)
				sh(t, "iptables-"+other+" -P FORWARD DROP")
				r := testRules(t, f, testConfig(f))
				apply(t, r, testSet())
				if text := sh(t, "iptables-"+other+" -S"); !strings.Contains(text, "-A FLANNEL-FWD -s 10.42.0.0/16") || !strings.Contains(text, "-P FORWARD DROP") {
					t.Error(text)
				}
				if text := sh(t, "iptables-"+other+" -t nat -S"); strings.Contains(text, "FLANNEL") != (f.name == "iptables-"+other) {
					t.Errorf("masquerading in both:\n%s", text)
				}
			})
		}
	}
}

// Where our accepting rules are not wanted, a note says which chain drops, in whichever firewall it is.
func TestDropsWithoutForwardRulesAreSaid(t *testing.T) {
	for _, f := range flavours() {
		for policy, says := range map[string]string{
			"iptables-nft -P FORWARD DROP":     "chain FORWARD of table filter (iptables, nft flavour) no rule accepts them; start weftd with --iptables-forward-rules, or iptables -I",
			"ip6tables-nft -P FORWARD DROP":    "chain FORWARD of table filter (iptables, nft flavour) no rule accepts them; start weftd with --iptables-forward-rules, or ip6tables -I",
			"iptables-legacy -P FORWARD DROP":  "chain FORWARD of table filter (iptables, legacy flavour) no rule accepts them; start weftd with --iptables-forward-rules, or iptables-legacy",
			"ip6tables-legacy -P FORWARD DROP": "chain FORWARD of table filter (iptables, legacy flavour) no rule accepts them; start weftd with --iptables-forward-rules, or ip6tables-legacy",
			"nft add chain ip theirs c { type filter hook forward priority 0 ; policy drop ; }":         "chain c of table theirs",
			"nft add chain inet filter FORWARD { type filter hook forward priority 0 ; policy drop ; }": "chain FORWARD of table filter",
		} {
			t.Run(f.name+", "+policy, func(t *testing.T) {
				inNamespace(t)
				sh(t, "nft add table ip theirs")
				sh(t, "nft add table inet filter")
				sh(t, policy)
				for _, forward := range []bool{false, true} {
					c := testConfig(f)
					c.Forward = forward
					r := testRules(t, f, c)
					apply(t, r, testSet())
					ours := forward && strings.Contains(says, "(iptables") // then our rules accept
					if notes := fmt.Sprint(r.Status().Notes); strings.Contains(notes, says) == ours {
						t.Errorf("forward rules %t: %s", forward, notes)
					}
				}
				c := testConfig(f)
				c.Forward, c.Network.EnableIPv6 = false, false
				r := testRules(t, f, c)
				apply(t, r, testSet())
				if notes := fmt.Sprint(r.Status().Notes); strings.Contains(notes, "ip6tables") {
					t.Errorf("about a family that is off: %s", notes)
				}
			})
		}
	}
}

// What flannel has made and weft has not taken over stays, unless it is asked for; a dry run changes nothing.
func TestRemoveLeavesFlannels(t *testing.T) {
	inNamespace(t)
	for _, line := range flannels() {
		sh(t, fmt.Sprintf(line, "nft"))
		sh(t, fmt.Sprintf(line, "legacy"))
	}
	sh(t, "nft add table ip6 flannel-ipv6")
	sh(t, "nft add chain ip6 flannel-ipv6 forward { type filter hook forward priority filter ; }")
	all := func() (text string) {
		for _, f := range flavours() {
			text += listing(t, f)
		}
		return text
	}
	before := all()
	for _, o := range []RemoveOptions{{}, {DryRun: true}, {DryRun: true, Flannel: true}} {
		lines, err := Remove(t.Context(), o)
		if err != nil || (len(lines) > 0) != o.Flannel || all() != before {
			t.Errorf("%+v: %q, %v\n%s", o, lines, err, all())
		}
	}
	lines, err := Remove(t.Context(), RemoveOptions{Flannel: true})
	// In each flavour two chains and three rules that lead there, and a table.
	if after := all(); err != nil || len(lines) != 2*5+1 || strings.Contains(after, "FLANNEL") || strings.Contains(after, "flannel") {
		t.Errorf("%d: %q, %v\n%s", len(lines), lines, err, after)
	}
}

// Beside what is ours a living flannel's rules stay, and everybody's whose names only look like ours.
func TestRemoveTakesOnlyOurs(t *testing.T) {
	beside := []string{
		"iptables-%[1]s -N FLANNEL-FWD", "iptables-%[1]s -A FORWARD -m comment --comment flanneld-forward -j FLANNEL-FWD",
		"iptables-%[1]s -A FLANNEL-FWD -s 10.99.0.0/16 -m comment --comment flanneld-forward -j ACCEPT",
		"iptables-%[1]s -N WEFT-CUSTOM", "iptables-%[1]s -A INPUT -m comment --comment weft -j WEFT-CUSTOM",
		"iptables-%[1]s -t mangle -N WEFT-PEERS-x", "iptables-%[1]s -t mangle -N WEFT-PEERS-01",
		"iptables-%[1]s -t raw -N WEFT-INPUT",
	}
	for _, f := range flavours() {
		t.Run(f.name, func(t *testing.T) {
			inNamespace(t)
			c := testConfig(f)
			var many []string
			for i := range 2 * peersInChain {
				many = append(many, fmt.Sprintf("198.51.100.%d", i+1))
			}
			apply(t, testRules(t, f, c), testSet(many...))
			kind := strings.TrimPrefix(f.name, "iptables-")
			if f.kind == kindNFTables {
				// The rules are changed as flannel would: it makes its two chains anew, and does not touch the others.
				kind = "nft"
				for _, chain := range []string{"postrtg", "forward"} {
					sh(t, "nft flush chain ip flannel-ipv4 "+chain)
					sh(t, "nft add rule ip flannel-ipv4 "+chain+" ip saddr 10.99.0.0/16 counter")
				}
			} else {
				sh(t, "iptables-"+kind+" -D FORWARD 1")
				sh(t, "iptables-"+kind+" -F FLANNEL-FWD")
				sh(t, "iptables-"+kind+" -X FLANNEL-FWD")
			}
			for _, line := range beside {
				sh(t, fmt.Sprintf(line, kind))
			}
			before := listing(t, f)
			// A user's rule may stand among flannel's, and so may ours, if flannel came after us.
			if f.kind != kindNFTables {
				cmd := exec.Command("iptables-"+kind, "-A", "FLANNEL-FWD", "-s", overlay4, "-m", "comment", "--comment", commentForward, "-j", "ACCEPT")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			dry, err := Remove(t.Context(), RemoveOptions{DryRun: true})
			if err != nil {
				t.Fatal(err)
			}
			lines, err := Remove(t.Context(), RemoveOptions{})
			if err != nil || len(lines) == 0 || fmt.Sprint(lines) != fmt.Sprint(dry) {
				t.Errorf("%q, dry run %q, %v", lines, dry, err)
			}
			after := listing(t, f)
			for line := range strings.Lines(before) {
				theirs := false
				for _, word := range []string{"10.99.0.0", "flanneld-forward", "CUSTOM", "PEERS-x", "PEERS-01", ":FLANNEL-FWD"} {
					theirs = theirs || strings.Contains(line, word)
				}
				if theirs && !strings.Contains(after, line) {
					t.Errorf("%q went with ours:\n%s", line, after)
				}
			}
			for _, own := range append(comments(), "WEFT-STRANGERS", "WEFT-FORWARD", "WEFT-PEERS-1 ", "198.51.100", "overlay-") {
				if strings.Contains(after, own) {
					t.Errorf("%q is left:\n%s", own, after)
				}
			}
			if again, err := Remove(t.Context(), RemoveOptions{}); err != nil || len(again) != 0 {
				t.Errorf("the second time: %q, %v", again, err)
			}
			// A daemon that removes what an earlier one left does not remove them either.
			c.Masquerade, c.Forward, c.Guard = false, false, Guard{}
			apply(t, testRules(t, f, c), testSet())
			if text := listing(t, f); f.kind != kindNFTables && !strings.Contains(text, "-j WEFT-CUSTOM") {
				t.Errorf("the sweep took a user's chain:\n%s", text)
			}
		})
	}
}
