package holder

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab/netns"
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
			// The user can reach the program in this folder, write nothing there, and has a state directory of their own.
			for _, err := range []error{os.Chmod(dir, 0o755), os.Mkdir(u.root, 0o700), os.Chown(u.root, int(uid), int(uid))} {
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

func (u user) command(args ...string) *exec.Cmd {
	cmd := exec.Command(u.binary, args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), cli+"=1", stateEnv+"="+u.root)
	cmd.SysProcAttr = &unix.SysProcAttr{Credential: &syscall.Credential{Uid: u.uid, Gid: u.uid}, Pdeathsig: unix.SIGKILL}
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
		f, err := os.Open(filepath.Join(dir, lockFile))
		if err != nil {
			continue
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false
		}
	}
	return processesWith(t, u.binary) == 0
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
		u.want(t, "", 1, "exec", "one", "node9", "true")
		u.want(t, "", 1, "exec", "two", "node1", "true")
		u.want(t, "", 1, "exec", "one", "node1", "no-such-program")
		u.want(t, "1\n", 0, "exec", "one", "node1", "cat", "/proc/sys/net/ipv4/ip_forward")
		u.want(t, "eth0\nlo\n", 0, "exec", "one", "node2-pod1", "ls", "/sys/class/net")
		u.want(t, "/\n", 7, "exec", "one", "node1", "sh", "-c", "pwd; exit 7")
		u.want(t, "", 128+9, "exec", "one", "node1", "sh", "-c", "kill -9 $$")
		if out, status := u.run(t, "through the socket", "exec", "one", "node1", "cat"); out != "through the socket" || status != 0 {
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

func TestSignalsAndLostClients(t *testing.T) {
	users(t, func(t *testing.T, u user) {
		u.want(t, "node2\n", 0, "up", "one")
		t.Cleanup(func() { u.run(t, "", "down", "one") })
		start := func(script string) *exec.Cmd {
			t.Helper()
			cmd := u.command("exec", "one", "node1", "sh", "-c", script, "marker-"+filepath.Base(filepath.Dir(u.root)))
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if b := make([]byte, 3); func() bool { _, err := io.ReadFull(out, b); return err != nil || string(b) != "go\n" }() {
				t.Fatalf("first words %q", b)
			}
			return cmd
		}
		asked := start(`trap "exit 5" TERM; echo go; while :; do sleep 0.01; done`)
		if err := asked.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := asked.Wait(); asked.ProcessState.ExitCode() != 5 {
			t.Errorf("SIGTERM passed on: %v, want exit status 5", err)
		}
		lost := start(`echo go; exec sleep 1000`)
		_ = lost.Process.Kill()
		_ = lost.Wait()
		await.True(t, "the command of a client that died is killed", func() bool { return processesWith(t, "marker-") == 0 })
	})
}

func TestKilledHolderLeavesOnlyFiles(t *testing.T) {
	users(t, func(t *testing.T, u user) {
		u.want(t, "node2\n", 0, "up", "one")
		sleeper := u.command("exec", "one", "node1", "sleep", "1000.125")
		if err := sleeper.Start(); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the sleeper sleeps", func() bool { return processesWith(t, "\x001000.125") == 2 }) // the sleeper, and exec itself
		pid, err := holderPID(filepath.Join(u.root, "one"))
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := sleeper.Wait(); err == nil {
			t.Error("exec of a lab that died: status 0")
		}
		await.True(t, "its processes are gone", func() bool { return u.ended(t) && processesWith(t, "\x001000.125") == 0 })
		u.want(t, "false\n", 0, "down", "one")
		if left := u.leftovers(t); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// What was started by a process of the lab that has ended, as a weftd by an upgrade, ends with the lab, also if the holder was killed.
func TestDownEndsWhoeverIsLeft(t *testing.T) {
	users(t, func(t *testing.T, u user) {
		for _, kill := range []bool{false, true} {
			u.want(t, "node2\n", 0, "up", "one")
			t.Cleanup(func() { u.run(t, "", "down", "one") })
			const script = `sh -c "sleep 1000.375; :" "$0" </dev/null >/dev/null 2>&1 & echo there`
			u.want(t, "there\n", 0, "exec", "one", "node1", "sh", "-c", script, u.root+"/one/node1")
			await.True(t, "the process runs whose parent has ended", func() bool { return processesWith(t, "sleep\x001000.375") == 1 })
			if kill {
				pid, err := holderPID(filepath.Join(u.root, "one"))
				if err != nil {
					t.Fatal(err)
				}
				if err := unix.Kill(pid, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				await.True(t, "the holder is gone", func() bool { _, err := holderPID(filepath.Join(u.root, "one")); return err != nil })
			}
			u.want(t, map[bool]string{false: "true\n", true: "false\n"}[kill], 0, "down", "one")
			await.True(t, "it is gone", func() bool { return processesWith(t, "sleep\x001000.375") == 0 && u.ended(t) })
		}
	})
}

// A holder that could not end a process says so to whoever asks for the end, and keeps the lab's files.
func TestDownSaysWhatIsLeft(t *testing.T) {
	t.Setenv(stateEnv, t.TempDir())
	c, err := claimName("one")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{end: func(error) {
		if err := c.leave([]netns.Process{{PID: 7, Name: "weftd"}}); !errors.Is(err, ErrLeft) {
			t.Errorf("%v", err)
		}
		c.release(true)
	}}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.serve(ctx, c.listener) }()
	defer func() { stop(); <-done }()
	if alive, err := Down("one"); !alive || !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), "pid 7") {
		t.Errorf("alive %v, %v", alive, err)
	}
	if alive, err := Down("one"); alive || err != nil { // it is a leftover now
		t.Errorf("alive %v, %v", alive, err)
	}
}

func TestInterruptedRun(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
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
				if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				if err := cmd.Wait(); err == nil {
					t.Error("an interrupted run ended with status 0")
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
	root := t.TempDir()
	t.Setenv(stateEnv, root)
	if err := os.MkdirAll(root+"/dead/node1", 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := claimName("busy")
	if err != nil {
		t.Fatal(err)
	}
	defer c.release(false)
	if _, err := claimName("busy"); !errors.Is(err, errHeld) {
		t.Errorf("claimed twice: %v", err)
	}
	_ = c.listener.Close() // so that the lab answers nobody
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
	if _, err := os.Stat(root + "/dead/node1"); !os.IsNotExist(err) {
		t.Errorf("the leftover's files are there: %v", err)
	}
	d.release(false)
}
