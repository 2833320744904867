package hostrules

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// shell runs lines of a shell in the namespace.
func shell(t *testing.T, lines string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", lines).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", lines, err, out)
	}
}

// tampering is what somebody does while no process of ours runs. keeps says that the chain with the count of strangers is not touched.
type tampering struct {
	lines string
	keeps bool
}

func tamperings(f flavour) []tampering {
	if f.kind == kindNFTables {
		const input, masq, forward = "ip flannel-ipv4 overlay-input", "ip flannel-ipv4 postrtg", "ip flannel-ipv4 forward"
		return []tampering{
			{"nft delete table ip flannel-ipv4", false},
			{"nft flush ruleset", false},
			{"nft flush chain " + input, false},
			{"nft flush chain " + masq, true},
			{"nft delete chain " + masq, true},
			{"nft add rule " + forward + " drop", true},
			{"nft insert rule " + masq + " accept", true},
			{"nft insert rule " + input + " accept", true}, // among others of its chain too a rule keeps its count
			{"nft add chain " + forward + " '{ policy drop; }'", true},
			{"nft delete element ip flannel-ipv4 overlay-peers '{ 198.51.100.1 }'", true},
			{"nft add element ip flannel-ipv4 overlay-peers '{ 203.0.113.9 }'", true},
			{"nft add element ip flannel-ipv4 overlay-peers '{ * }'", false}, // everybody is a peer
			{"nft flush chain " + input + "; nft flush chain ip flannel-ipv4 overlay-forward; nft delete set ip flannel-ipv4 overlay-peers; " +
				"nft add set ip flannel-ipv4 overlay-peers '{ type ipv4_addr; counter; }'", false},
			{"nft add chain ip flannel-ipv4 theirs; nft add rule ip flannel-ipv4 theirs drop; nft insert rule " + forward + " jump theirs", true},
			{"nft add table ip flannel-ipv4 '{ flags dormant; }'", false},
			{"nft delete rule " + masq + " handle $(nft -a list chain " + masq + " | sed -n 's/.*224.*handle //p')", true},
			{"h=$(nft -a list chain " + masq + " | sed -n 's/.*daddr 192.*handle //p'); nft delete rule " + masq + " handle $h; nft add rule " + masq +
				` ip daddr 192.0.2.0/24 return comment '"flanneld masq (weft)"'`, true}, // in another place
			{"nft replace rule " + masq + " handle $(nft -a list chain " + masq + " | sed -n 's/.*daddr 192.*handle //p') " +
				`ip daddr 192.0.2.0/25 return comment '"flanneld masq (weft)"'`, true},
			{"nft replace rule " + masq + " handle $(nft -a list chain " + masq + " | sed -n 's/.*fully.*comment.*handle //p' | head -1) " +
				`ip saddr 10.42.0.0/16 ip daddr != 224.0.0.0/4 masquerade comment '"flanneld masq (weft)"'`, true},
			{"nft delete chain " + forward + "; nft add chain " + forward + " '{ type filter hook forward priority 10; }'", true},
			{"nft flush chain " + input + "; nft flush chain ip flannel-ipv4 overlay-forward; nft delete set ip flannel-ipv4 overlay-peers; " +
				"nft add set ip flannel-ipv4 overlay-peers '{ type ipv4_addr; flags interval; }'", false},
		}
	}
	kind := strings.TrimPrefix(f.name, "iptables-")
	var out []tampering
	for _, x := range []tampering{
		{"iptables-%[1]s -t nat -F", true},
		{"iptables-%[1]s -t mangle -F", false},
		{"iptables-%[1]s -t nat -D FLANNEL-POSTRTG 3", true},
		{"iptables-%[1]s -t nat -I FLANNEL-POSTRTG -j ACCEPT", true},
		{"iptables-%[1]s -t nat -A FLANNEL-POSTRTG -d 192.0.2.0/24 -m comment --comment 'flanneld masq (weft)' -j RETURN; iptables-%[1]s -t nat -D FLANNEL-POSTRTG 5", true},
		{"iptables-%[1]s -t nat -R FLANNEL-POSTRTG 3 -s 10.42.0.0/16 -j RETURN", true},
		{"iptables-%[1]s -t mangle -F WEFT-PEERS", true},
		{"iptables-%[1]s -t mangle -D WEFT-PEERS 1", true},
		{"iptables-%[1]s -t mangle -D INPUT 1", true},
		{"iptables-%[1]s -t mangle -A INPUT -j WEFT-INPUT", true},
		{"iptables-%[1]s -F FORWARD; iptables-%[1]s -F FLANNEL-FWD; iptables-%[1]s -X FLANNEL-FWD", true},
	} {
		out = append(out, tampering{fmt.Sprintf(x.lines, kind), x.keeps})
	}
	return out
}

// counts are the packets that were dropped as strangers', in the order of the listing.
func counts(t *testing.T, f flavour) string {
	t.Helper()
	find := `(?m)(packets \d+) bytes \d+ drop comment "weft: not from a peer"`
	if f.kind == kindIptablesNFT {
		return fmt.Sprint(regexp.MustCompile(`\[(\d+):\d+\] -A WEFT-STRANGERS`).FindAllString(sh(t, "iptables-nft-save -c"), -1))
	} else if f.kind == kindIptablesLegacy {
		return fmt.Sprint(regexp.MustCompile(`\[(\d+):\d+\] -A WEFT-STRANGERS`).FindAllString(sh(t, "iptables-legacy-save -c"), -1))
	}
	return fmt.Sprint(regexp.MustCompile(find).FindAllString(sh(t, "nft list table ip flannel-ipv4"), -1))
}

// What somebody changes between two processes the second one puts back, and leaves the rest as it is.
func TestTamperedBetweenProcesses(t *testing.T) {
	for _, f := range flavours() {
		for _, x := range tamperings(f) {
			t.Run(f.name+", "+x.lines, func(t *testing.T) {
				inNamespace(t)
				sh(t, "ip address add 10.42.9.9/32 dev lo")
				peers := testSet("198.51.100.2", "198.51.100.1", "2001:db8:5::1")
				apply(t, testRules(t, f, testConfig(f)), peers)
				strangers(t, 3)
				before, dropped := listing(t, f), counts(t, f)
				if !strings.Contains(dropped, "3") {
					t.Fatalf("strangers are not counted: %s", dropped)
				}
				shell(t, x.lines)
				if listing(t, f) == before {
					t.Fatal("this changes nothing")
				}
				r := testRules(t, f, testConfig(f))
				wrote := counted(r)
				apply(t, r, peers)
				if now := listing(t, f); sortedLines(now) != sortedLines(before) {
					t.Errorf("not put back: %s", changed(before, now))
				}
				if now := counts(t, f); (now == dropped) != x.keeps {
					t.Errorf("the count of strangers is %s, was %s", now, dropped)
				}
				if *wrote == 0 {
					t.Error("nothing was written")
				}
				next := testRules(t, f, testConfig(f))
				wrote = counted(next)
				if apply(t, next, peers); *wrote != 0 {
					t.Errorf("the next process wrote %d times", *wrote)
				}
			})
		}
	}
}

// While the set of peers changes all the time, not one datagram of a peer that stays is dropped, and none of a stranger's passes.
func TestNoPacketMeetsHalfOfTheRules(t *testing.T) {
	const rounds = 10
	for _, f := range flavours() {
		t.Run(f.name, func(t *testing.T) {
			inNamespace(t)
			c := testConfig(f)
			c.Guard.Underlay = "lo"
			few := append(manyPeers(), "127.0.0.1")
			r := testRules(t, f, c)
			apply(t, r, testSet("127.0.0.1"))
			ear, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8472})
			if err != nil {
				t.Fatal(err)
			}
			defer ear.Close()
			var mouths [2]*net.UDPConn
			for i, from := range []string{"127.0.0.1", "127.0.0.2"} {
				if mouths[i], err = net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)}, ear.LocalAddr().(*net.UDPAddr)); err != nil {
					t.Fatal(err)
				}
				defer mouths[i].Close()
			}
			done := make(chan struct{})
			var wg sync.WaitGroup
			sent := 0
			wg.Go(func() {
				for b := make([]byte, 9); ; sent++ {
					select {
					case <-done:
						return
					default:
					}
					_, _ = mouths[1].Write([]byte("stranger")) // EPERM says that it is dropped
					if _, err := mouths[0].Write([]byte("peer")); err != nil {
						t.Errorf("datagram %d: %v", sent, err)
						return
					}
					_ = ear.SetReadDeadline(time.Now().Add(10 * time.Second))
					if n, err := ear.Read(b); err != nil || string(b[:n]) != "peer" {
						t.Errorf("datagram %d: %q, %v", sent, b[:n], err)
						return
					}
				}
			})
			stop := sync.OnceFunc(func() {
				close(done)
				wg.Wait()
			})
			defer stop() // also where a change fails, before the sockets are closed
			for i := range rounds {
				if i%2 == 0 {
					apply(t, r, testSet(few[i:]...))
				} else {
					apply(t, r, testSet("127.0.0.1", few[i]))
				}
			}
			stop()
			t.Logf("%d datagrams of each while the rules changed %d times", sent, rounds)
		})
	}
}

// A change of peers or of a network is one transaction, and what it is not about keeps its counters, and in nftables its handles.
func TestChangesAreNarrow(t *testing.T) {
	before := []string{"198.51.100.2", "198.51.100.1", "2001:db8:5::1"}
	for _, x := range []struct {
		name    string
		change  func(*Config)
		peers   []string
		nft     string // the lines of nftables that may go or come
		refills string // the chains of iptables that are filled anew
	}{
		{"a peer comes", nil, append(before, "203.0.113.9"), `elements = |203\.0\.113\.9`, "WEFT-(PEERS|TO)"},
		{"a peer goes", nil, before[1:], `elements = `, "WEFT-(PEERS|TO)"},
		{"a network without masquerading comes", func(c *Config) {
			c.NoMasquerade = append(c.NoMasquerade, netip.MustParsePrefix("203.0.113.0/24"))
		}, before, `daddr 203\.0\.113\.0/24 return`, "FLANNEL-POSTRTG"},
		{"a network without masquerading goes", func(c *Config) { c.NoMasquerade = c.NoMasquerade[1:] }, before, `daddr 192\.0\.2\.0/24 return`, "FLANNEL-POSTRTG"},
		{"a link of the underlay's side is another", func(c *Config) { c.Guard.Underlay = "eth1" }, before, `iifname "eth[01]"`, "WEFT-(INPUT|FORWARD)"},
	} {
		for _, f := range flavours() {
			t.Run(x.name+", "+f.name, func(t *testing.T) {
				inNamespace(t)
				sh(t, "ip address add 10.42.9.9/32 dev lo")
				apply(t, testRules(t, f, testConfig(f)), testSet(before...))
				strangers(t, 3)
				c, marks, dropped, generation := testConfig(f), withCounters(t, f), counts(t, f), Changes()
				if x.change != nil {
					x.change(&c)
				}
				r := testRules(t, f, c)
				wrote := counted(r)
				apply(t, r, testSet(x.peers...))
				families := 1
				if c.Guard.Underlay != "eth0" {
					families = 2
				}
				if f.kind != kindIptablesLegacy && Changes()-generation != uint32(families) || *wrote < families {
					t.Errorf("%d transactions, and the kernel has counted %d; want %d", *wrote, Changes()-generation, families)
				}
				if counts(t, f) != dropped {
					t.Errorf("the count of strangers is %s, was %s", counts(t, f), dropped)
				}
				about := regexp.MustCompile(x.nft)
				if f.kind != kindNFTables {
					about = regexp.MustCompile(" -A " + x.refills)
				}
				for line := range strings.Lines(changed(marks, withCounters(t, f))) {
					if strings.TrimSpace(line) != "" && !about.MatchString(line) {
						t.Errorf("it changes %s", line)
					}
				}
			})
		}
	}
}

// withCounters is withMarks with the chain in each line of iptables, but without handles there.
func withCounters(t *testing.T, f flavour) string {
	t.Helper()
	if f.kind != kindIptablesNFT {
		return withMarks(t, f)
	}
	return withoutPolicies(sh(t, "iptables-nft-save -c") + sh(t, "ip6tables-nft-save -c"))
}
