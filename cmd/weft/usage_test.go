package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
)

// asCommand is a variable that makes the test binary run as weft, so that the test gets its exit status.
const asCommand = "WEFT_TEST_IS_COMMAND"

// exits runs weft as a process.
func exits(t *testing.T, args ...string) (status cli.ExitStatus, stdout, stderr string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cli.ExitStatus(cmd.ProcessState.ExitCode()), out.String(), errs.String()
}

// Scripts rely on these exit statuses.
func TestExitStatuses(t *testing.T) {
	ready, starting := start(t, &node{}), start(t, &node{empty: true})
	for _, c := range []struct {
		args string
		want cli.ExitStatus
		says string // on stderr, where nothing else is
	}{
		{"status --control-socket " + ready, 0, ""},
		{"status --json --control-socket " + ready, 0, ""},
		{"status --control-socket " + starting, 3, ""},
		{"status --json --control-socket " + starting, 3, ""},
		{"status --wait --control-socket " + ready, 0, ""},
		{"status --wait=peers --control-socket " + ready, 0, ""},
		{"status --wait --timeout 100ms --control-socket " + starting, 1, "100ms"},
		{"status --wait --timeout 100ms --control-socket /nonexistent/s", 1, "running"},
		{"status --wait=pods --control-socket " + ready, 2, "ready"},
		{"status --timeout 1s --control-socket " + ready, 2, "--timeout goes with --wait"},
		{"peers --control-socket " + starting, 0, ""},
		{"status --control-socket /nonexistent/s", 1, "running"},
		{"stauts", 2, "status?"},
		{"", 0, ""}, {"lease", 0, ""}, {"help lease", 0, ""}, {"lease --help", 0, ""}, {"--version", 0, ""},
		{"version", 0, ""}, {"version --json", 0, ""},
		{"version --jsn", 2, "--jsn"},
		{"status --wait peers", 2, "--wait=peers"}, {"status x", 2, "x"}, {"version x", 2, "x"},
		{"lease lst", 2, "list?"},
		{"help nonsense", 2, "nonsense"}, {"help lease lst", 2, "list?"}, {"help lease list", 0, ""},
		{"lease list --more", 2, "more"},
		{"lease --nonsense", 2, "nonsense"},
		{"lease release", 2, "arg"},
		{"ping", 2, "arg"}, {"ping a b", 2, "arg"}, {"ping -4 -6 b", 2, "them"}, {"ping -c 0 b", 2, "--count 0"},
		{"ping --interval 0s b", 2, "--interval 0s"},
		{"ping -W 2h b", 2, "--timeout 2h"}, {"ping --size -1 b", 2, "--size -1"},
		{"lease release 10.42.2.1/24", 2, "10.42.2.0/24"},
		{"lab foo", 2, "command"},
		{"lab donw", 2, "down?"},
		{"lab up --backend carrier-pigeon", 2, "carrier-pigeon"},
		{"lab up --nodes 0", 2, "--nodes 0: "},
		{"lab run --nodes -1", 2, "--nodes -1"},
		{"lab run --pods 0", 2, "--pods 0: "},
		{"lab up --mtu 0", 2, "--mtu 0"},
		{"lab run --duration -5s", 2, "--duration -5s"},
		{"bench --quick --json /nonexist/x", 2, "--json: open /nonexist/x"},
		{"bench --quick --html /nonexist/x", 2, "--html: open /nonexist/x"},
		{"bench --quick --benchstat /", 2, "--benchstat: open /: "},
		{"bench --to 127.0.0.1:1 --json /nonexist/x", 2, "--json: open /nonexist/x"},
		{"lab down --all --lab x", 2, "--all"},
		{"lab exec", 2, "arg"},
		{"completion tcsh", 2, "completion"},
		{"completion bsh", 2, "bash"},
		{"status --nonsense", 2, "--help"},
		{"status --jsn", 2, "[flags]"},
		{"status -json", 2, "-json"},
		{"lab up --node 3", 2, "--node"},
		{"lease release", 2, "weft lease release SUBNET|NODE [flags]"},
		{"lease release a b", 2, "arg"},
		{"lab exec node1 --lab x -- ls", 2, "[flags]"},
		{"lab up --nodes three", 2, `"three"`},
		{"lab run --duration x", 2, "duration"},
		{"lab donw", 2, "COMMAND"},
		{"doctor -- --bogus", 2, "-bogus"},
		{"doctor -- --ifcae eth0", 2, "--iface"},
		{"doctor -- --help", 2, "weftd --help"},
		{"doctor bogus", 2, "behind --"},
		{"bench serv", 2, "bench"},
		{"bench --quick --full", 2, "full"},
		{"bench --rungs vlan", 2, "vlan"},
		{"bench --from a", 2, "--lab"},
		{"bench --lab x", 2, "--from and --to"},
		{"cleanup --rules --files", 2, "--files"},
	} {
		status, out, errs := exits(t, strings.Fields(c.args)...)
		if status != c.want || (c.says == "") != (errs == "") || !strings.Contains(errs, c.says) ||
			(out == "") != (c.says != "") {
			t.Errorf("weft %s: exit status %d, want %d, with %q; on stdout %d bytes, on stderr: %s", c.args, status,
				c.want, c.says, len(out), errs)
		}
	}
}

// The exit status adds nothing to what is printed.
func TestStatusPrintsWhetherReadyOrNot(t *testing.T) {
	out, stderr, err := weft(t, "status", "--control-socket", start(t, &node{empty: true}))
	var status cli.ExitStatus
	if !errors.As(err, &status) || status != cli.ExitNotReady || stderr != "" || !strings.Contains(out,
		"waiting") {
		t.Errorf("%v %s %s", err, stderr, out)
	}
	var s control.Status
	if s = (&node{empty: true}).Status(); s.Ready {
		t.Error("the fake is ready")
	}
}

// Every command names a lab by --lab.
func TestOneWayToNameALab(t *testing.T) {
	t.Setenv("WEFT_LAB_STATE", t.TempDir())
	for _, args := range []string{"lab exec --lab none node1 -- true", "lab down --lab none", "lab down none",
		"bench --lab none --from a --to b"} {
		if _, _, err := weft(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), "none") ||
			errors.Is(err, cli.ErrUsage) {
			t.Errorf("%s: %v", args, err)
		}
	}
	for _, command := range []string{"lab run", "lab up", "lab exec", "lab down", "bench"} {
		out, _, err := weft(t, append(strings.Fields(command), "--help")...)
		if err != nil || !strings.Contains(out, "--lab name") || strings.Contains(out, "--name") {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
}
