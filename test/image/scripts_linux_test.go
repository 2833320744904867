package image

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weft/test/netns"
)

// runScript runs one of the image's scripts with each shell that may have to run it, each time in a folder of
// its own, and calls check with the result.
func runScript(t *testing.T, before string, env []string, script string, args []string,
	check func(t *testing.T, dir string, status int, stderr string)) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(repository, folder, script))
	if err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{"dash", "bash"} {
		t.Run(shell, func(t *testing.T) {
			dir := t.TempDir()
			line := before + "\nexec " + shell + " " + path + ` "$@"`
			cmd := exec.Command(shell, append([]string{"-ec", line, "test"}, args...)...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			err := netns.New(t, "image").Run(cmd) // the script looks at routes
			if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
				t.Fatalf("%v (a network namespace takes root)", err)
			}
			check(t, dir, cmd.ProcessState.ExitCode(), stderr.String())
		})
	}
}

// TestDockerOptions expects the output of flannel's script to the letter.
func TestDockerOptions(t *testing.T) {
	const whole = "FLANNEL_NETWORK=10.5.0.0/16\nFLANNEL_SUBNET=10.5.72.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
	const bip, mtu = `DOCKER_OPT_BIP="--bip=10.5.72.1/24"` + "\n", `DOCKER_OPT_MTU="--mtu=1450"` + "\n"
	const each = bip + `DOCKER_OPT_IPMASQ="--ip-masq=false"` + "\n" + mtu
	const combined = `DOCKER_OPTS=" --bip=10.5.72.1/24 --ip-masq=false --mtu=1450"` + "\n"
	const via = "ip link add name left type veth peer name right; ip addr add 192.0.2.1/24 dev left; ip link " +
		"set left up; ip route add 10.5.72.0/24 via 192.0.2.9"
	for _, c := range []struct {
		name, subnet, before string
		args, env            []string
		want                 string
		status               int
		stderr               string
	}{
		{name: "both forms", subnet: whole, want: each + combined},
		{name: "-i", subnet: whole, args: []string{"-i"}, want: each},
		{name: "-c", subnet: whole, args: []string{"-c"}, want: combined},
		{name: "-i -c", subnet: whole, args: []string{"-i", "-c"}, want: each + combined},
		{name: "-k", subnet: whole, args: []string{"-c", "-k", "DOCKER_NETWORK_OPTIONS"},
			want: strings.Replace(combined, "DOCKER_OPTS", "DOCKER_NETWORK_OPTIONS", 1)},
		{name: "-m", subnet: whole, args: []string{"-m"}, want: bip + mtu +
			`DOCKER_OPTS=" --bip=10.5.72.1/24 --mtu=1450"` + "\n"},
		{name: "weftd masquerades nothing", subnet: strings.Replace(whole, "true", "false", 1),
			args: []string{"-c"},
			want: strings.Replace(combined, "masq=false", "masq=true", 1)},
		{name: "no mtu", subnet: "FLANNEL_SUBNET=10.5.72.1/24\n", want: bip + `DOCKER_OPTS=" --bip=10.5.72.1/24"` +
			"\n"},
		{name: "both families: IPv4 only", subnet: whole +
			"FLANNEL_IPV6_NETWORK=fd00::/48\nFLANNEL_IPV6_SUBNET=fd00:0:0:1::1/64\n", want: each + combined},
		{name: "no newline at the end, and quotes", subnet: "FLANNEL_SUBNET='10.5.72.1/24'\nFLANNEL_MTU=\"1450\"",
			args: []string{"-i"}, want: bip + mtu},
		{name: "what the environment has comes first", subnet: whole, args: []string{"-c"},
			env:  []string{"DOCKER_OPTS=--debug"},
			want: `DOCKER_OPTS="--debug  --bip=10.5.72.1/24 --ip-masq=false --mtu=1450"` + "\n"},
		{name: "further options of the environment", subnet: "FLANNEL_MTU=1450\n",
			env: []string{"DOCKER_OPT_LOG=--log-level=warn"},
			want: `DOCKER_OPT_LOG="--log-level=warn"` + "\n" + mtu + `DOCKER_OPTS=" --log-level=warn --mtu=1450"` +
				"\n"},
		{name: "an empty file", want: "DOCKER_OPTS=\"\"\n"},
		{name: "no file", args: []string{"-f", "nowhere"}, want: "DOCKER_OPTS=\"\"\n", stderr: "running"},
		{name: "neither true nor false", subnet: "FLANNEL_IPMASQ=yes\n", status: 1, stderr: "FLANNEL_IPMASQ"},
		{name: "unknown option", subnet: whole, args: []string{"-z"}, status: 1, stderr: "usage:"},
		{name: "help", subnet: whole, args: []string{"-h"}, status: 1, stderr: "usage:"},
		{name: "not a name", subnet: whole, args: []string{"-k", "A;touch here"}, status: 1, stderr: "variable"},
		{name: "not executed", subnet: "FLANNEL_SUBNET=$(touch here)\n", status: 1, stderr: "prefix"},
		{name: "another host's subnet", subnet: whole, before: via, want: each + combined, status: 1,
			stderr: "routed"},
		{name: "another host's, longer", subnet: strings.Replace(whole, "72.1/24", "72.77/26", 1),
			args:   []string{"-c"},
			before: strings.Replace(via, "72.0/24", "72.64/26", 1),
			want:   strings.Replace(combined, "72.1/24", "72.77/26", 1), status: 1, stderr: "routed"},
		{name: "its own bridge", subnet: whole, args: []string{"-c"},
			before: strings.Replace(via, "via 192.0.2.9", "dev left", 1), want: combined},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := "cat >subnet.env <<'EOF'\n" + c.subnet + "\nEOF\n" + c.before
			if c.subnet != "" && !strings.HasSuffix(c.subnet, "\n") {
				before = "printf %s " + "\"" + strings.ReplaceAll(c.subnet, `"`, `\"`) + "\" >subnet.env\n" + c.before
			}
			args := append([]string{"-f", "subnet.env", "-d", "out"}, c.args...)
			runScript(t, before, c.env, "mk-docker-opts.sh", args,
				func(t *testing.T, dir string, status int, stderr string) {
					got, err := os.ReadFile(filepath.Join(dir, "out"))
					if err != nil && c.want != "" {
						t.Error(err)
					}
					if string(got) != c.want || status != c.status || !strings.Contains(stderr, c.stderr) ||
						(c.stderr == "" && stderr != "") {
						t.Errorf("status %d, stderr %q, wrote\n%swant status %d, stderr %q,\n%s", status, stderr, got, c.status,
							c.stderr, c.want)
					}
					entries, err := os.ReadDir(dir)
					if err != nil || len(entries) > 2 {
						t.Errorf("left behind: %v, %v", entries, err)
					}
				})
		})
	}
}

func TestDockerOptionsToAPipe(t *testing.T) {
	before := "echo FLANNEL_MTU=1450 >subnet.env; ln -s real out"
	runScript(t, before, nil, "mk-docker-opts.sh", []string{"-f", "subnet.env", "-d", "out", "-i"},
		func(t *testing.T, dir string, status int, stderr string) {
			got, err := os.ReadFile(filepath.Join(dir, "real"))
			if err != nil || string(got) != "DOCKER_OPT_MTU=\"--mtu=1450\"\n" {
				t.Errorf("a link, such as /dev/stdout, is not replaced but written through: %q, %v, status %d: %s", got,
					err, status, stderr)
			}
		})
}

func TestInstallConf(t *testing.T) {
	for _, c := range []struct {
		name, before string
		args         []string
		status       int
		stderr, want string
	}{
		{"new", "echo new >src; mkdir d", []string{"src", "d/10-flannel.conflist"}, 0, "", "new\n"},
		{"over an old one", "echo new >src; mkdir d; echo old, and longer >d/10-flannel.conflist",
			[]string{"src", "d/10-flannel.conflist"}, 0, "", "new\n"},
		{"no source", "mkdir d; echo old >d/10-flannel.conflist", []string{"src", "d/10-flannel.conflist"}, 1,
			"src", "old\n"},
		{"no folder", "echo new >src", []string{"src", "d/10-flannel.conflist"}, 1, "d/", ""},
		{"no arguments", "", nil, 1, "usage:", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			runScript(t, "umask 077;"+c.before, nil, "install-conf", c.args,
				func(t *testing.T, dir string, status int, stderr string) {
					// a file that is missing counts as empty
					got, _ := os.ReadFile(filepath.Join(dir, "d/10-flannel.conflist"))
					if string(got) != c.want || status != c.status || !strings.Contains(stderr, c.stderr) {
						t.Errorf("status %d, stderr %q, wrote %q; want %d, %q, %q", status, stderr, got, c.status,
							c.stderr, c.want)
					}
					if info, err := os.Stat(filepath.Join(dir, "d/10-flannel.conflist")); status == 0 &&
						(err != nil || info.Mode().Perm() != 0o644) {
						t.Errorf("%v, %v: want a file that everybody reads", info, err)
					}
					if entries, _ := os.ReadDir(filepath.Join(dir, "d")); len(entries) > 1 {
						t.Errorf("left behind: %v", entries)
					}
				})
		})
	}
}
