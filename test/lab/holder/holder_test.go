package holder

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/await"
	testns "weft/test/netns"
)

// user runs the small weft of TestMain as some user.
type user struct {
	binary, root string
	uid          uint32
}

// users runs a test as root, and as nobody, an ordinary user, whose labs are in user namespaces.
func users(t *testing.T, test func(*testing.T, user)) {
	testns.Root(t, "only root can become an ordinary user")
	for name, uid := range map[string]uint32{"root": 0, "nobody": 65534} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "weft-holder-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			u := user{binary: filepath.Join(dir, "weft"), root: filepath.Join(dir, "labs"), uid: uid}
			copyBinary(t, u.binary)
			// The user can reach the program in this folder, write nothing there, and has a state directory of their
			// own.
			for _, err := range []error{os.Chmod(dir, 0o755), os.Mkdir(u.root, 0o700),
				os.Chown(u.root, int(uid), int(uid))} {
				if err != nil {
					t.Fatal(err)
				}
			}
			test(t, u)
		})
	}
}

func copyBinary(t *testing.T, to string) {
	t.Helper()
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// own runs this test binary as the user of the test.
func own(t *testing.T) user {
	u := user{binary: "/proc/self/exe", root: t.TempDir(), uid: uint32(os.Geteuid())}
	t.Setenv(stateEnv, u.root)
	return u
}

// start starts a command and waits for its first line.
func (u user) start(t *testing.T, args ...string) {
	t.Helper()
	cmd := u.command(args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
}

func (u user) command(args ...string) *exec.Cmd {
	cmd := exec.Command(u.binary, args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), cli+"=1", stateEnv+"="+u.root)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if u.uid != uint32(os.Geteuid()) {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: u.uid, Gid: u.uid}
	}
	return cmd
}

// run returns the standard output and the exit status.
func (u user) run(t *testing.T, stdin string, args ...string) (string, int) {
	t.Helper()
	cmd := u.command(args...)
	var out, fault bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &fault
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", args, err)
	}
	if fault.Len() > 0 {
		t.Logf("%v: %s", args, &fault)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// want runs a command and compares its output and its exit status.
func (u user) want(t *testing.T, output string, status int, args ...string) {
	t.Helper()
	if out, got := u.run(t, "", args...); out != output || got != status {
		t.Errorf("%v: %q, status %d; want %q, status %d", args, out, got, output, status)
	}
}

// processesWith counts processes that have the word among their arguments.
func processesWith(t *testing.T, word string) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(word)) {
			n++
		}
	}
	return n
}

// ended says whether nothing of the user's labs runs any more. It looks for locks beside processes,
// because an exiting process loses its command line before it closes its files.
func (u user) ended(t *testing.T) bool {
	t.Helper()
	for _, dir := range u.leftovers(t) {
		if _, err := holderPID(dir); err == nil {
			return false
		}
	}
	return processesWith(t, u.binary) == 0
}

// inOne is the command line of `weft lab exec` in lab one.
func inOne(host string, args ...string) []string {
	return append([]string{"lab", "exec", "--lab", "one", host, "--"}, args...)
}

// killHolder kills the holder of lab one with no chance to clean up, and waits until its lab is gone from the
// list.
func (u user) killHolder(t *testing.T) {
	t.Helper()
	dir := filepath.Join(u.root, "one")
	pid, err := holderPID(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the holder is gone", func() bool { _, err := holderPID(dir); return err != nil })
}

func (u user) leftovers(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob(u.root + "/*")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestUpExecDown(t *testing.T) {
	users(t, func(t *testing.T, u user) {
		u.want(t, "node2\n", 0, "up", "one")
		t.Cleanup(func() { u.run(t, "", "down", "one") })
		u.want(t, "", 1, "up", "one") // the name is taken
		u.want(t, "", 1, inOne("node9", "true")...)
		u.want(t, "", 1, "lab", "exec", "--lab", "two", "node1", "--", "true")
		u.want(t, "", 1, inOne("node1", "no-such-program")...)
		u.want(t, "1\n", 0, inOne("node1", "cat", "/proc/sys/net/ipv4/ip_forward")...)
		u.want(t, "eth0\nlo\n", 0, inOne("node2-pod1", "ls", "/sys/class/net")...)
		u.want(t, "/\n", 7, inOne("node1", "sh", "-c", "pwd; exit 7")...)
		u.want(t, "0\n", 0, inOne("node1", "sh", "-c", "id -u; ls -d /proc/self/fd >/dev/null")...)
		if out, status := u.run(t, "standard input", inOne("node1", "cat")...); out != "standard input" ||
			status != 0 {
			t.Errorf("standard input: %q, status %d", out, status)
		}
		u.want(t, "true\n", 0, "down", "one")
		u.want(t, "false\n", 1, "down", "one")
		if left := u.leftovers(t); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		await.True(t, "its processes are gone", func() bool { return u.ended(t) })
	})
}

// TestExecIsTheCommand ends `weft lab exec` as a shell, a terminal or a supervisor would. The command hears
// the signal, its exit status or signal is that of exec, and it does not outlive exec.
func TestExecIsTheCommand(t *testing.T) {
	users(t, func(t *testing.T, u user) {
		u.want(t, "node2\n", 0, "up", "one")
		t.Cleanup(func() { u.run(t, "", "down", "one") })
		marker := "marker-" + filepath.Base(filepath.Dir(u.root))
		start := func(script string) *exec.Cmd {
			t.Helper()
			cmd := u.command(inOne("node1", "sh", "-c", script, marker)...)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			if b := make([]byte, 3); func() bool {
				_, err := io.ReadFull(out, b)
				return err != nil ||
					string(b) != "go\n"
			}() {
				t.Fatalf("first words %q", b)
			}
			return cmd
		}
		// status is what a shell would say.
		status := func(cmd *exec.Cmd) int {
			_ = cmd.Wait()
			if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
				return 128 + int(ws.Signal())
			}
			return cmd.ProcessState.ExitCode()
		}
		for _, c := range []struct {
			script string
			signal unix.Signal
			want   int
		}{
			{`trap "exit 5" TERM; echo go; while :; do sleep 0.01; done`, unix.SIGTERM, 5},
			{`trap "exit 6" USR1; echo go; while :; do sleep 0.01; done`, unix.SIGUSR1, 6},
			{`trap "exit 8" USR2; echo go; while :; do sleep 0.01; done`, unix.SIGUSR2, 8},
			{`trap "exit 9" INT; echo go; while :; do sleep 0.01; done`, unix.SIGINT, 9},
			{`echo go; exec sleep 1000`, unix.SIGTERM, 128 + 15},
			{`echo go; exec sleep 1000`, unix.SIGKILL, 128 + 9},
			{`echo go; kill -9 $$`, 0, 128 + 9},
		} {
			cmd := start(c.script)
			if err := cmd.Process.Signal(c.signal); err != nil && c.signal != 0 {
				t.Fatal(err)
			}
			if got := status(cmd); got != c.want {
				t.Errorf("%s: signal %d: status %d, want %d", c.script, c.signal, got, c.want)
			}
			await.True(t, "the command has ended", func() bool { return processesWith(t, marker) == 0 })
		}
	})
}

// At a terminal the command reads what is typed, and Ctrl-C ends it once, as without weft.
func TestExecAtATerminal(t *testing.T) {
	testns.Programs(t, "script:bsdutils")
	users(t, func(t *testing.T, u user) {
		u.want(t, "node2\n", 0, "up", "one")
		t.Cleanup(func() { u.run(t, "", "down", "one") })
		const counts = `n=0; trap "n=\$((n+1))" INT; echo go; until read line; do :; done; sleep 0.2; echo "$line, $n interrupts"`
		cmd := u.command(inOne("node1", "sh", "-c", counts)...)
		var words []string
		for _, a := range cmd.Args {
			words = append(words, "'"+a+"'")
		}
		cmd.Path, cmd.Args = "/usr/bin/script", []string{"script", "-qec", strings.Join(words, " "), "/dev/null"}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := bufio.NewReader(out)
		if line, err := said.ReadString('\n'); err != nil || line != "go\r\n" {
			t.Fatalf("first words %q, %v", line, err)
		}
		if _, err := in.Write([]byte("\x03")); err != nil {
			t.Fatal(err)
		}
		await.OK(t, "the interrupt is heard", func() error { _, err := said.Peek(2); return err }) // ^C
		if _, err := in.Write([]byte("typed\n")); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(said)
		if _ = cmd.Wait(); err != nil || !strings.Contains(string(rest), "typed, 1 interrupts") {
			t.Errorf("%q, %v", rest, err)
		}
	})
}

// What runs in a lab ends with it at the latest at weft lab down: a command of exec, and what was started by
// a process that has ended, as a weftd by an upgrade. So it is also if the holder was killed.
func TestDownEndsWhateverIsLeft(t *testing.T) {
	users(t, func(t *testing.T, u user) {
		for _, kill := range []bool{false, true} {
			u.want(t, "node2\n", 0, "up", "one")
			t.Cleanup(func() { u.run(t, "", "down", "one") })
			for _, host := range []string{"node1", "node2-pod1", "wire"} {
				const script = `sh -c "sleep 1000.375; :" </dev/null >/dev/null 2>&1 & echo there`
				u.want(t, "there\n", 0, inOne(host, "sh", "-c", script)...)
			}
			sleeper := u.command(inOne("node1", "sleep", "1000.375")...)
			if err := sleeper.Start(); err != nil {
				t.Fatal(err)
			}
			await.True(t, "all run", func() bool { return processesWith(t, "sleep\x001000.375") >= 4 })
			if kill {
				u.killHolder(t)
			}
			u.want(t, map[bool]string{false: "true\n", true: "false\n"}[kill], 0, "down", "one")
			if err := sleeper.Wait(); err == nil {
				t.Error("exec of a lab that ended: status 0")
			}
			await.True(t, "all are gone", func() bool { return processesWith(t, "1000.375") == 0 && u.ended(t) })
			if left := u.leftovers(t); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		}
	})
}

// A holder that could not end a process says so to whoever asks for the end, and keeps the lab's files.
func TestDownSaysWhatIsLeft(t *testing.T) {
	u := own(t)
	u.start(t, "claim", "one") // its first process could not be ended
	if alive, err := Down("one"); !alive || !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), "pid 7") {
		t.Errorf("alive %v, %v", alive, err)
	}
	if alive, err := Down("one"); alive || err != nil { // it is a leftover now
		t.Errorf("alive %v, %v", alive, err)
	}
}

func TestInterruptedRun(t *testing.T) {
	const down = unix.Signal(0) // weft lab down asks for the end, which is no failure
	for _, sig := range []unix.Signal{down, unix.SIGINT, unix.SIGTERM, unix.SIGKILL} {
		t.Run(fmt.Sprint(sig), func(t *testing.T) {
			users(t, func(t *testing.T, u user) {
				cmd := u.command("run", "one")
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
					t.Fatal(err)
				}
				if sig == down {
					u.want(t, "true\n", 0, "down", "one")
				} else if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				if err := cmd.Wait(); (err == nil) != (sig == down) {
					t.Errorf("an interrupted run ended with %v", err)
				}
				await.True(t, "its processes are gone", func() bool { return u.ended(t) })
				if sig == unix.SIGKILL {
					u.want(t, "false\n", 0, "down", "one")
				}
				if left := u.leftovers(t); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			})
		})
	}
}

func TestNames(t *testing.T) {
	t.Setenv(stateEnv, t.TempDir())
	for _, bad := range []string{"", "..", "a/b", "-x", strings.Repeat("x", 33), "a b"} {
		if _, err := claimName(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
		if _, err := Down(bad); err == nil {
			t.Errorf("down %q was accepted", bad)
		}
	}
	if _, err := Down("nothing"); !errors.Is(err, ErrNoLab) {
		t.Errorf("%v, want %v", err, ErrNoLab)
	}
}

func TestListTellsLeftoversFromTheLiving(t *testing.T) {
	u := own(t)
	if err := os.MkdirAll(u.root+"/dead/node1", 0o755); err != nil {
		t.Fatal(err)
	}
	u.start(t, "claim", "busy") // it is never up
	if _, err := claimName("busy"); !errors.Is(err, errHeld) {
		t.Errorf("claimed twice: %v", err)
	}
	labs, err := List()
	if err != nil || len(labs) != 2 {
		t.Fatalf("%v, %v", labs, err)
	}
	if labs[0].Name != "busy" || !labs[0].Alive || labs[1].Name != "dead" || labs[1].Alive {
		t.Errorf("%+v", labs)
	}
	// A claim removes what a dead lab of that name left.
	d, err := claimName("dead")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(u.root + "/dead/node1"); !os.IsNotExist(err) {
		t.Errorf("the leftover's files are there: %v", err)
	}
	d.release(false)
}
