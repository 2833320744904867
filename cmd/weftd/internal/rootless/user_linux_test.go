package rootless

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"weft/cmd/internal/options"
	"weft/routing/ownthread"
	"weft/test/await"
	"weft/test/netns"
)

const (
	role = "WEFT_TEST_ROLE"
	user = 2001
)

// TestMain is also the program that TestAnOrdinaryUser runs as a user, which executes itself.
func TestMain(m *testing.M) {
	runtime.LockOSThread() // as in weftd
	code := 0
	switch done, err := Aside(os.Stdin); {
	case done && err != nil:
		fmt.Fprintln(os.Stderr, "weftd:", err)
		code = 1
	case done:
	case os.Getenv(role) != "":
		code = goThere()
	default:
		netns.Isolate()
		code = m.Run()
	}
	os.Exit(code)
}

// found is what the program tells of where it got to.
type found struct {
	Place        options.Place
	Outside, TUN bool // it is where it was started, and a TUN can be made inside
	UID          int
	Err          string
}

func goThere() int {
	cfg := options.Config{CacheDir: os.Getenv("STATE")}
	cfg.Rootless.On, cfg.Rootless.TUNNetns = true, os.Getenv("NETNS")
	var f found
	p, err := Enter(cfg, os.Args)
	if err != nil {
		f.Err = err.Error()
	} else {
		f.Place, f.UID = p, os.Getuid()
		f.TUN = ownthread.In(p.FD, tryTUN) == nil
		here, err := os.Readlink("/proc/self/ns/net")
		f.Outside = err == nil && here == os.Getenv("HERE")
	}
	if err := json.NewEncoder(os.Stdout).Encode(f); err != nil {
		return 1
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test has looked
	return 0
}

// An ordinary user without capabilities gets a TUN in a namespace of its own, or of another process of its
// own, stays with its sockets where it was, and keeps its process; and the next one finds the namespace in
// which somebody still is.
func TestAnOrdinaryUser(t *testing.T) {
	netns.Root(t, "only root can become another user")
	dir, err := os.MkdirTemp("", "weft-rootless-") // others can read it, unlike t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, to := range map[string]int{dir: 0, state: user} {
		if err := os.Chown(path, to, to); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "program")
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(program, self, 0o755)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	const device = "mount -t tmpfs none /dev/net && mknod -m %s /dev/net/tun c 10 200 && exec setpriv --reuid " +
		"%d --regid %d --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs \"$@\""
	start := func(mode, netns string) (f found, pid int, end func()) {
		t.Helper()
		cmd := exec.Command("unshare", "-m", "sh", "-c", fmt.Sprintf(device, mode, user, user), "sh", program)
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", role + "=go", "STATE=" + state, "NETNS=" + netns,
			"HERE=" + here}
		cmd.Stderr = os.Stderr
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
		end = func() { _ = in.Close(); _ = cmd.Wait() }
		t.Cleanup(end)
		if err := json.NewDecoder(out).Decode(&f); err != nil {
			t.Fatal(err)
		}
		return f, cmd.Process.Pid, end
	}

	if f, _, _ := start("600", ""); !strings.Contains(f.Err, "chmod 0666 /dev/net/tun") {
		t.Errorf("a device for root alone: %+v", f)
	}
	f, pid, end := start("666", "")
	if f.Err != "" || !f.Place.Own || !f.Place.User || !f.TUN || !f.Outside || f.UID != 0 {
		t.Fatalf("a namespace of its own: %+v", f)
	}
	if st, err := stat(fmt.Sprintf("/proc/%d", pid)); err != nil || st.Uid != user {
		t.Errorf("the process is user %d's (%v), want %d", st.Uid, err, user)
	}
	inside := exec.Command("nsenter", "-t", fmt.Sprint(f.Place.PID), "-U", "-n", "--preserve-credentials",
		"sleep", "600")
	inside.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	if err := inside.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inside.Process.Kill(); _ = inside.Wait() })
	first, err := stat(fmt.Sprintf("/proc/%d/ns/net", f.Place.PID))
	if err != nil {
		t.Fatal(err)
	}
	await.OK(t, "nsenter gets there", func() error {
		st, err := stat(fmt.Sprintf("/proc/%d/ns/net", inside.Process.Pid))
		if err == nil && st.Ino != first.Ino {
			err = errors.New("it is elsewhere")
		}
		return err
	})
	end()
	again, _, end := start("666", "")
	if st, err := stat(fmt.Sprintf("/proc/%d/ns/net", again.Place.PID)); err != nil || st.Ino != first.Ino ||
		!again.Place.Own || !again.TUN {
		t.Errorf("the next one: %+v, %v", again, err)
	}
	await.OK(t, "of those who keep the namespace, the former one has ended", func() error {
		if _, err := startOf(f.Place.PID); err == nil {
			return fmt.Errorf("process %d is there", f.Place.PID)
		}
		return nil
	})
	end()
	of, _, _ := start("666", fmt.Sprint(inside.Process.Pid))
	if of.Err != "" || of.Place.Own || !of.Place.User || of.Place.PID != inside.Process.Pid || !of.TUN ||
		!of.Outside {
		t.Errorf("the namespace of a process: %+v", of)
	}
	if _, err := find(fmt.Sprint(inside.Process.Pid)); err == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("user %d's", user)) {
		t.Errorf("root in a user namespace whose owner may trace it: %v", err)
	}
	if f, _, _ := start("666", fmt.Sprint(os.Getpid())); !strings.Contains(f.Err, "somebody") {
		t.Errorf("root's process: %+v", f)
	}
}
