package test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/session"
	"weft/test/netns"
)

// The ways to a namespace that docs/rootless.md has. A block of commands names those that it is for, after
// the hosts to type it on; one that names none is for all of them.
func ways() []string { return []string{"unshare", "pasta", "rootlesskit", "podman", "node"} }

// block is one block of commands of docs/rootless.md.
type block struct {
	line  int
	hosts []int
	text  string
}

// blocks returns those of a document that are for one of the ways, in their order.
func blocks(t *testing.T, path, way string) (all []block) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var in *block
	for i, line := range strings.Split(string(text), "\n") {
		words := strings.Fields(strings.TrimPrefix(line, "```"))
		switch {
		case in != nil && line == "```":
			all, in = append(all, *in), nil
		case in != nil:
			in.text += line + "\n"
		case strings.HasPrefix(line, "```") && len(words) > 1 && words[0] == "sh":
			b := block{line: i + 2}
			var only []string
			for _, w := range words[1:] {
				var host int
				if n, _ := fmt.Sscanf(w, "host%d", &host); n == 1 {
					b.hosts = append(b.hosts, host)
				} else if only = append(only, w); !slices.Contains(ways(), w) {
					t.Errorf("%s:%d: %s is neither a host nor one of %q", path, i+1, w, ways())
				}
			}
			if in = &b; len(only) > 0 && !slices.Contains(only, way) {
				in = &block{} // read, and left out
			}
		}
	}
	return slices.DeleteFunc(all, func(b block) bool { return b.line == 0 })
}

// terminal is a shell of a user's on a host. A command that fails ends it.
type terminal struct {
	in    io.Writer
	out   *os.File
	lines *bufio.Reader
}

func (h tenants) terminal(host int, u session.User, env ...string) *terminal {
	h.t.Helper()
	x := &terminal{}
	cmd := session.Command(u, session.Options{SetUID: true, Env: env}, "sh", "-eu")
	in, err := cmd.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	out, w, err := os.Pipe() // what runs in the background keeps it open, and Wait is not to wait for that
	if err != nil {
		h.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr, x.in, x.out, x.lines = w, w, in, out, bufio.NewReader(out)
	if err := h.Node(host).NS.Start(cmd); err != nil {
		h.t.Fatal(err)
	}
	_ = w.Close()
	h.t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill() // it may wait for what never comes, and not for its next command
		_ = cmd.Wait()
		_ = out.Close()
	})
	return x
}

const prompt = "that was it, with status"

// longest is how long the commands of one block may take: some wait in a loop, and for what never comes they
// would wait for ever.
const longest = 2 * time.Minute

// run types commands, and returns what they print.
func (x *terminal) run(text string) (string, error) {
	if err := x.out.SetReadDeadline(time.Now().Add(longest)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(x.in, "%s\necho '%s' $?\n", text, prompt); err != nil {
		return "", err
	}
	var said strings.Builder
	for {
		line, err := x.lines.ReadString('\n')
		// what runs in the background may have left a line without its end
		before, _, over := strings.Cut(line, prompt)
		said.WriteString(before)
		switch {
		case over:
			return said.String(), nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return said.String(), fmt.Errorf("it takes longer than %s", longest)
		case err != nil:
			return said.String(), fmt.Errorf("%w: the shell has ended", err)
		}
	}
}

// rootFS gives each user's home on each host a small root file system, with busybox.
func (h tenants) rootFS(u session.User) (path string) {
	h.t.Helper()
	path = u.Home() + "/rootfs"
	for _, n := range h.Nodes() {
		_, err := h.run(n.Index, u, session.Options{}, "sh", "-euc",
			`mkdir -p "$1"/bin "$1"/proc "$1"/sys "$1"/dev "$1"/etc "$1"/run "$1"/tmp
			cp "$2"/busybox "$2"/talker "$1"/bin
			for c in sh ip ping sleep cat; do ln -s busybox "$1"/bin/$c; done`, "fill", path, session.Bin)
		if err != nil {
			h.t.Fatal(err)
		}
	}
	return path
}

// busybox finds Debian's, which is static.
func busybox(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatalf("%v: apt-get install busybox-static", err)
	}
	return path
}

// Every command of docs/rootless.md works when a user types it: with each way to a namespace, on two hosts.
// What the document calls $image is a root file system of busybox here, and $peer is what it says.
func TestRootlessDocument(t *testing.T) {
	t.Parallel()
	for _, way := range ways() {
		t.Run(way, func(t *testing.T) {
			parallel(t)
			netns.Programs(t, "crun", "newuidmap:uidmap", "pasta:passt", "podman", "rootlesskit", "slirp4netns")
			const page = "../docs/rootless.md"
			h := userHosts(t, 2, lab.WireFull, command(t, "weft-etcd"), busybox(t))
			u := session.Ada()
			var terminals []*terminal
			image := "image=--rootfs " + h.rootFS(u)
			for i := range 2 {
				terminals = append(terminals, h.terminal(1+i, u, image, "peer="))
			}
			for _, b := range blocks(t, page, way) {
				if strings.Contains(b.text, `"$peer"`) {
					for i, x := range terminals {
						if _, err := x.run("peer=" + h.peerOf(terminals[1-i], way)); err != nil {
							t.Fatal(err)
						}
						x.reaches(t)
					}
				}
				for _, host := range b.hosts {
					said, err := terminals[host-1].run(b.text)
					if err != nil {
						log, _ := h.run(host, u, session.Options{}, "tail", "-n", "20", u.Home()+"/weftd.log")
						t.Fatalf("%s:%d: on host %d:\n%s\n%v\n%s\nThe end of weftd's log:\n%s", page, b.line, host, b.text,
							err, said, log)
					}
				}
			}
			h.unprivileged()
		})
	}
}

// peerOf returns the address that packets are sent to from the other host.
func (h tenants) peerOf(x *terminal, way string) (addr string) {
	h.t.Helper()
	ask :=
		`nsenter --user --net --preserve-credentials --target "$(cat "$XDG_RUNTIME_DIR"/netns.pid)" ip -4 -o address`
	if way == "podman" {
		ask = `podman inspect --format 'inet {{.NetworkSettings.Networks.weft.IPAddress}}' web`
	}
	await.OK(h.t, "the other's address", func() error {
		said, err := x.run(ask)
		if m := regexp.MustCompile(`inet (10\.42\.[0-9.]+)`).FindStringSubmatch(said); m != nil {
			addr = m[1]
			return nil
		}
		return fmt.Errorf("%v: %s", err, said)
	})
	return addr
}

// reaches waits until $peer answers. The document leaves as much time as a person takes to type, and this
// test none.
func (x *terminal) reaches(t *testing.T) {
	t.Helper()
	await.OK(t, "the other host answers", func() error {
		said,
			err := x.run(
			`! nsenter --user --net --preserve-credentials --target "$(cat "$XDG_RUNTIME_DIR"/netns.pid)" ping -n -c 1 -W 2 "$peer" || echo there`)
		if err == nil && !strings.HasSuffix(said, "there\n") {
			err = errors.New(said)
		}
		return err
	})
}
