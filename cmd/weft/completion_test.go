package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weft/cmd/weft/internal/cli"
)

// TestCompletes asks weft as the shells' scripts do, which leave out what does not begin as the word does.
func TestCompletes(t *testing.T) {
	t.Setenv("WEFTD_CONTROL_SOCKET", start(t, &node{}))
	t.Setenv("WEFT_LAB_STATE", t.TempDir())
	for line, want := range map[string]string{
		"stat": "status", "events --kind started,peer_g": "started,peer_gone", "lab up --backend host": "host-gw",
		"version ": "", "help lab d": "down", "lab exec --lab none ": "", "status --wait=": "ready",
		"bench --wire uso,": "uso,full", "doctor -- --etcd-pre": "--etcd-prefix=", "peers ": "b\t10.0.0.2",
		"capture --peer b": "b\t10.0.0.2", "lease release ": "a\t192.0.2.1",
	} {
		out, _, err := weft(t, append([]string{"__complete"}, strings.Split(line, " ")...)...)
		if err != nil || want == "" && !strings.HasPrefix(out, ":4\n") || !strings.Contains("\n"+out, "\n"+want) {
			t.Errorf("%q is not completed to %q: %v\n%s", line, want, err, out)
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
