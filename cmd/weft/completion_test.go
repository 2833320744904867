package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weft/cmd/weft/internal/cli"
	"weft/test/await"
)

// TestBashCompletes runs bash with the script of weft completion bash, as somebody who presses the tab key
// behind a line would.
func TestBashCompletes(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "weft")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv(asCommand, "1") // the test binary is the weft that the script asks
	t.Setenv("WEFTD_CONTROL_SOCKET", start(t, &node{}))
	t.Setenv("WEFT_LAB_STATE", t.TempDir())
	lines := []string{
		"weft stat", "weft peers ", "weft capture --peer d", "weft lease release ",
		"weft events --kind started,peer_g", "weft status --wait=", "weft lab up --backend host",
		"weft bench --wire uso,", "weft lab exec --lab none ", "weft version ", "weft doctor -- --etcd-pre",
		"weft help lab d",
	}
	// Readline, which takes blanks behind words as it is told, is not there: compopt is for it.
	const script = `source <(weft completion bash)
complete -p weft >/dev/null || exit 1
compopt() { :; }
while IFS= read -r COMP_LINE; do
	COMP_POINT=${#COMP_LINE} COMP_TYPE=9 COMPREPLY=()
	__start_weft
	printf '%s|%s\n' "$COMP_LINE" "${COMPREPLY[*]}"
done
`
	completed := func() (out []byte, got []string) {
		cmd := exec.CommandContext(t.Context(), "bash", "--norc", "--noprofile", "-c", script)
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if got = strings.Split(strings.TrimSpace(string(out)), "\n"); len(got) < len(lines) {
			t.Fatalf("%s", out)
		}
		return out, got
	}
	var out []byte
	var got []string
	await.OK(t, "nodes", func() error {
		// the shell waits a second for weftd's answer, and where that is late shows none
		out, got = completed()
		for _, named := range []string{"weft peers |", "weft lease release |"} {
			if !slices.ContainsFunc(got, func(g string) bool {
				return strings.HasPrefix(g, named) && strings.Contains(g, "10.")
			}) {
				return fmt.Errorf("%q shows no node:\n%s", named, out)
			}
		}
		return nil
	})
	for line, want := range map[string]string{
		"weft stat": "status", "weft events --kind started,peer_g": `started\,peer_gone`,
		"weft lab up --backend host": "host-gw", "weft version ": "", "weft help lab d": "down",
		"weft lab exec --lab none ": "", "weft status --wait=": "ready peers",
		"weft bench --wire uso,": "uso,full uso,plain", "weft doctor -- --etcd-pre": "--etcd-prefix=",
	} {
		if !slices.ContainsFunc(got, func(g string) bool { return strings.TrimSpace(g) == line+"|"+want }) {
			t.Errorf("%q is not completed to %q:\n%s", line, want, out)
		}
	}
}

// A flag that takes a value says what may stand there: words, a name of a file, or that only the user can
// know.
func TestEveryValueIsCompletedOrKnownToTheUser(t *testing.T) {
	users := map[string]bool{}
	for name := range strings.FieldsSeq("timeout last count snaplen duration nodes pods mtu rounds " +
		"sweep-rounds ping-rounds frames size loss tcp trial ping through " +
		"weftd-arg etcd-endpoints etcd-prefix etcd-username etcd-password kube-api-url kube-annotation-prefix " +
		"node-name interval pid address name network pod") {
		users[name] = true
	}
	root := rootCommand(cli.NewApp(""))
	cli.Complete(root)
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if _, has := c.GetFlagCompletionFunc(f.Name); !has && f.Value.Type() != "bool" && !f.Hidden &&
				!users[f.Name] {
				t.Errorf("%s --%s: nothing says what may stand there", c.CommandPath(), f.Name)
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
}
