package hostrules

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// listing is everything that the host has in a flavour, without what differs from run to run.
func listing(t *testing.T, f flavour) string {
	t.Helper()
	text, err := tryListing(f)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func tryListing(f flavour) (string, error) {
	var w strings.Builder
	for _, cmd := range f.list {
		out, err := try(cmd)
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(out) {
			if !strings.HasPrefix(line, "#") {
				w.WriteString(line)
			}
		}
	}
	text := regexp.MustCompile(`\[\d+:\d+\]`).ReplaceAllString(w.String(), "[0:0]")
	return regexp.MustCompile(`packets \d+ bytes \d+`).ReplaceAllString(text, "packets 0 bytes 0"), nil
}

// sortedLines is for comparing listings in which tables have changed places.
func sortedLines(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// The whole listing of each firewall is as in testdata, for both families.
func TestListingsAreGolden(t *testing.T) {
	for _, f := range flavours() {
		t.Run(f.name, func(t *testing.T) {
			inNamespace(t)
			r := testRules(t, f, testConfig(f))
			apply(t, r, testSet("198.51.100.2", "198.51.100.1", "2001:db8:5::1"))
			got := listing(t, f)
			file := filepath.Join("testdata", f.name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			// Nothing changes when nothing has changed, also for the next process.
			again := testRules(t, f, testConfig(f))
			apply(t, again, testSet("198.51.100.2", "198.51.100.1", "2001:db8:5::1"))
			apply(t, again, testSet("198.51.100.2", "198.51.100.1", "2001:db8:5::1"))
			if now := listing(t, f); now != got || again.Status().Repaired != 0 {
				t.Errorf("a second process changed it:\n%s", now)
			}
		})
	}
}

// A large cluster's peers fit into one transaction, and the rules change with them.
func TestManyPeers(t *testing.T) {
	const peers = 6000
	var all []string
	for i := range peers {
		all = append(all, fmt.Sprintf("198.51.%d.%d", i/250, i%250+1), fmt.Sprintf("2001:db8:5::%x", i+1))
	}
	for _, f := range flavours() {
		t.Run(f.name, func(t *testing.T) {
			inNamespace(t)
			r := testRules(t, f, testConfig(f))
			apply(t, r, testSet(all...))
			apply(t, r, testSet(all[2:]...))
			text := listing(t, f)
			for _, last := range []string{"198.51.23.250", "2001:db8:5::1770"} {
				if !strings.Contains(text, last) {
					t.Errorf("%s is not let in", last)
				}
			}
			if regexp.MustCompile(`198\.51\.0\.1[,/ ]`).MatchString(text) {
				t.Error("who has left is still let in")
			}
		})
	}
}
