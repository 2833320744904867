package custody

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/rights"
	"weft/test/await"
	"weft/test/netns"
)

// asNobody is a variable that makes the test binary connect as another user, to the socket that it names.
const asNobody = "WEFT_TEST_BE_NOBODY"

// The test binary is the holder too, as weftd is.
func TestMain(m *testing.M) {
	if path := os.Getenv(asNobody); path != "" {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			fmt.Println(err)
			os.Exit(0)
		}
		_, err = newSession(c).report(look, "")
		fmt.Println(err)
		os.Exit(0)
	}
	if control := os.Getenv(asSwitch); control != "" {
		if err := runSwitch(control); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == Verb {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		o, err := HoldArguments(os.Args[2:])
		if err == nil {
			err = Hold(ctx, o)
		}
		stop()
		if err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	netns.Main(m)
}

// node is where weftds of one node run, one after the other.
type node struct {
	t       *testing.T
	control string
	owner   string
	timeout time.Duration
	env     map[string]string
	log     bytes.Buffer
}

func newNode(t *testing.T) *node {
	n := &node{t: t, control: filepath.Join(t.TempDir(), "weftd.sock"), owner: "node-1", timeout: time.Minute}
	t.Cleanup(func() {
		if _, _, err := End(context.WithoutCancel(t.Context()), n.socket()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log:\n%s", n.log.String())
		}
	})
	return n
}

func (n *node) socket() string { return SocketFor(n.control) }

// weftd opens what a weftd has that starts.
func (n *node) weftd() *Custody {
	c := Open(n.t.Context(), Options{Control: n.control, Owner: n.owner, Timeout: n.timeout,
		Getenv: func(name string) string { return n.env[name] }, Logger: slog.New(slog.NewTextHandler(&n.log, nil))})
	n.t.Cleanup(c.Close)
	return c
}

// look is what the holder says, an error if there is none.
func (n *node) look() (Report, error) {
	r, ok, err := Look(n.t.Context(), n.socket())
	if err == nil && !ok {
		err = errNoHolder
	}
	return r, err
}

func (n *node) ended() {
	n.t.Helper()
	await.OK(n.t, "the holder has ended", func() error {
		if r, ok, err := Look(n.t.Context(), n.socket()); ok || err != nil {
			return fmt.Errorf("%+v, %v", r, err)
		}
		if _, err := os.Lstat(n.socket()); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("its socket is left: %w", err)
		}
		return nil
	})
}

// pipe returns the ends of one.
func pipe(t *testing.T) (r, w int) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rights.Close(p[:]) })
	return p[0], p[1]
}

func keepOne(t *testing.T, c *Custody, name, meta string, fds ...int) {
	t.Helper()
	if err := c.Keep(t.Context(), name, []byte(meta), fds); err != nil {
		t.Fatal(err)
	}
}

// The next weftd gets what the last one had kept, with what was said of it, however often there is another.
func TestTheNextWeftdGetsWhatWasKept(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	if s := c.Status(); s != (Status{}) {
		t.Errorf("before anything is kept: %+v", s)
	}
	if _, err := n.look(); !errors.Is(err, errNoHolder) {
		t.Errorf("a holder before there is anything to keep: %v", err)
	}
	r, w := pipe(t)
	keepOne(t, c, "pod a/eth0", "about a", r, w)
	keepOne(t, c, "b", "old", r)
	keepOne(t, c, "b", "about b", w)
	keepOne(t, c, "c", "about c", w)
	c.Forget("c")
	c.Forget("d")
	s := c.Status()
	if s.By != ByHolder || s.Items != 2 || s.Descriptors != 3 || s.Fault != "" || s.PID == 0 || s.PID == os.Getpid() {
		t.Errorf("%+v", s)
	}
	for range 5 {
		c.Close()
		c = n.weftd()
		items, _ := c.Kept("")
		if len(items) != 2 || items[0].Name != "b" || string(items[0].Meta) != "about b" || items[1].Name != "pod a/eth0" || len(items[1].FDs) != 2 {
			t.Fatalf("%+v", items)
		}
		if _, err := unix.Write(items[1].FDs[1], []byte("x")); err != nil {
			t.Error(err)
		}
		if k, err := unix.Read(items[1].FDs[0], make([]byte, 8)); k != 1 || err != nil {
			t.Error(k, err)
		}
		for _, i := range items {
			rights.Close(i.FDs)
		}
		if again, _ := c.Kept(""); len(again) != 0 || c.Status() != s {
			t.Errorf("a second time %v; %+v", again, c.Status())
		}
	}
}

// A holder outlives weftd's process group, and ends when it is told to, when its time is over, and when nothing is left.
func TestWhenTheHolderEnds(t *testing.T) {
	t.Parallel()
	r, _ := pipe(t)
	t.Run("told", func(t *testing.T) {
		n := newNode(t)
		c := n.weftd()
		keepOne(t, c, "a", "", r)
		if g, err := unix.Getpgid(c.Status().PID); err != nil || g == unix.Getpgrp() {
			t.Errorf("its process group is %d: %v", g, err)
		}
		c.Close()
		await.OK(t, "the holder sees that weftd is away", func() error {
			rep, err := n.look()
			if err == nil && rep.Left == 0 {
				err = fmt.Errorf("%+v", rep)
			}
			return err
		})
		if rep, ok, err := End(t.Context(), n.socket()); err != nil || !ok || rep.Items != 1 || rep.Left == 0 {
			t.Errorf("%+v %v %v", rep, ok, err)
		}
		n.ended()
	})
	t.Run("its time is over", func(t *testing.T) {
		n := newNode(t)
		n.timeout = 1500 * time.Millisecond
		c := n.weftd()
		keepOne(t, c, "a", "", r)
		c.Close()
		n.ended()
	})
	t.Run("its socket is gone", func(t *testing.T) {
		n := newNode(t)
		c := n.weftd()
		keepOne(t, c, "a", "", r)
		pid := c.Status().PID
		if err := os.Remove(n.socket()); err != nil {
			t.Fatal(err)
		}
		c.Close()
		await.OK(t, "its end", func() error {
			if unix.Kill(pid, 0) == nil {
				return errors.New("it lives")
			}
			return nil
		})
	})
	t.Run("nothing is left", func(t *testing.T) {
		n := newNode(t)
		c := n.weftd()
		keepOne(t, c, "a", "", r)
		c.Forget("a")
		if c.Status().By != "" {
			t.Errorf("%+v", c.Status())
		}
		n.ended()
		keepOne(t, c, "b", "", r) // weftd goes on, and starts another
		if rep, err := n.look(); err != nil || rep.Items != 1 {
			t.Errorf("%+v %v", rep, err)
		}
	})
}

// If the holder dies, weftd starts another one and gives it everything.
func TestAHolderThatDiesIsReplaced(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	run := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { run <- c.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-run; err != nil {
			t.Error(err)
		}
	}()
	r, w := pipe(t)
	keepOne(t, c, "a", "about a", r)
	keepOne(t, c, "b", "about b", w)
	for range 3 {
		pid := c.Status().PID
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await.OK(t, "another holder with everything", func() error {
			rep, err := n.look()
			if err == nil && (rep.PID == pid || rep.Items != 2 || c.Status().PID != rep.PID || c.Status().Fault != "") {
				err = fmt.Errorf("%+v, %+v", rep, c.Status())
			}
			return err
		})
	}
	pid := c.Status().PID // and one that dies just before something is to be kept
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	keepOne(t, c, "c", "about c", w)
	if rep, err := n.look(); err != nil || rep.Items != 3 || rep.PID == pid {
		t.Errorf("%+v %v", rep, err)
	}
}

// What is forgotten while the holder does not answer is not there any more when it answers again.
func TestAHolderThatAnswersAgainForgets(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	r, _ := pipe(t)
	keepOne(t, c, "a", "", r)
	keepOne(t, c, "b", "", r)
	c.mu.Lock()
	c.session.close()
	c.session = nil
	c.mu.Unlock()
	c.Forget("a")
	keepOne(t, c, "c", "", r)
	if rep, err := n.look(); err != nil || rep.Items != 2 || len(c.owed) != 0 {
		t.Errorf("the holder has %d items, want 2; %v", rep.Items, err)
	}
}

// Descriptors go to nobody but the same node and the same user.
func TestOthersGetNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	r, _ := pipe(t)
	keepOne(t, c, "a", "", r)
	info, err := os.Lstat(n.socket())
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	netns.Root(t, "only root can become another user")
	// A mode and directories that let others connect are not all that keeps them out.
	for path := n.socket(); path != os.TempDir(); path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{asNobody + "=" + n.socket()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), errOver.Error()) {
		t.Errorf("%v: %s", err, out)
	}
	for path := filepath.Dir(n.socket()); path != os.TempDir(); path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	n.owner = "node-2"
	other := n.weftd()
	if items, _ := other.Kept(""); len(items) != 0 {
		t.Errorf("another node got %v", items)
	}
	n.ended()
	if !strings.Contains(n.log.String(), "not this node's") {
		t.Error("the log does not say it")
	}
}

// A directory in which others could put something in the socket's place is refused, and so is what they have put there.
func TestASocketIsNotLookedForWhereOthersWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, _ := pipe(t)
	try := func(dir string) error {
		c := Open(t.Context(), Options{Control: dir + "/weftd.sock", Owner: "x", Timeout: time.Minute, Getenv: func(string) string { return "" }, Logger: slog.New(slog.DiscardHandler)})
		defer c.Close()
		err := c.Keep(t.Context(), "a", nil, []int{r})
		if err != nil && c.Status().Fault == "" {
			t.Error("the status has no fault")
		}
		c.Forget("a")
		return err
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := try(dir); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Error(err)
	}
	if err := os.Mkdir(dir+"/beneath", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := try(dir + "/beneath"); err == nil {
		t.Error("a directory beneath one that others write is used")
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := try(dir + "/link"); err == nil {
		t.Error("a link to a directory is followed")
	}
	if err := os.Symlink(dir+"/elsewhere", SocketFor(dir+"/weftd.sock")); err != nil {
		t.Fatal(err)
	}
	if err := try(dir); err == nil {
		t.Error("a link in the socket's place is followed")
	}
}

// What is no message, too long, or too much changes nothing and costs nobody else anything.
func TestGarbageIsRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	r, w := pipe(t)
	keepOne(t, c, "a", "about a", r)
	pid := c.Status().PID
	dial := func() *net.UnixConn {
		t.Helper()
		u, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: n.socket(), Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	good := message{verb: keep, name: "x", body: []byte("y")}.bytes()
	version := slices.Clone(good)
	version[2] = 99
	many := make([]int, MaxFDs+1)
	for k := range many {
		many[k] = w
	}
	for name, p := range map[string]struct {
		b   []byte
		fds []int
	}{
		"nothing at all": {nil, []int{w}}, "text": {[]byte("GET / HTTP/1.1\r\n\r\n"), nil}, "a header alone": {good[:headerSize], []int{w}},
		"too short": {good[:len(good)-1], []int{w}}, "too long": {append(slices.Clone(good), 0), []int{w}}, "another version": {version, []int{w}},
		"no hello": {good, []int{w}}, "huge": {bytes.Repeat([]byte{'W', 'K', 1, 2, 255}, 20000), many}, "an answer": {message{verb: done}.bytes(), many},
		"too many": {good, many},
	} {
		for range 20 {
			u := dial()
			if _, _, err := u.WriteMsgUnix(p.b, unix.UnixRights(p.fds...), nil); err != nil && len(p.b) > 0 {
				t.Errorf("%s: %v", name, err)
			}
			b := make([]byte, maxMessage)
			if err := u.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
				t.Fatal(err)
			}
			if m, fds, err := receive(u, b); err == nil && m.verb != refused || len(fds) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: %+v %v %v", name, m, fds, err)
			}
			u.Close()
		}
	}
	var silent []*net.UnixConn // those who connect and say nothing keep nobody out
	for range 5 * maxConns {
		silent = append(silent, dial())
	}
	if rep, err := n.look(); err != nil || rep.Items != 1 || rep.PID != pid {
		t.Errorf("%+v %v", rep, err)
	}
	keepOne(t, c, "b", "", w)
	if err := c.Keep(t.Context(), strings.Repeat("x", MaxName+1), nil, []int{w}); err == nil {
		t.Error("a long name is kept")
	}
	if err := c.Keep(t.Context(), "", nil, []int{w}); err == nil {
		t.Error("an empty name is kept")
	}
	if err := c.Keep(t.Context(), "m", make([]byte, MaxMeta+1), []int{w}); err == nil {
		t.Error("long bytes are kept")
	}
	if err := c.Keep(t.Context(), "n", nil, nil); !errors.Is(err, errNoFDs) {
		t.Error(err)
	}
	for _, u := range silent {
		u.Close()
	}
	await.OK(t, "no descriptor of those that came with garbage is left", func() error {
		if open := openFDs(t, pid); open > 16 {
			return fmt.Errorf("%d are open", open)
		}
		return nil
	})
}

func openFDs(t *testing.T, pid int) int {
	t.Helper()
	d, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// A process has a limit of descriptors, which is said in the refusal.
func TestTheLimitOfDescriptorsIsSaid(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	r, _ := pipe(t)
	keepOne(t, c, "a", "", r)
	pid := c.Status().PID
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 32, Max: 32}, nil); err != nil {
		t.Fatal(err)
	}
	fds := make([]int, MaxFDs)
	for k := range fds {
		fds[k] = r
	}
	var err error
	for k := 0; k < 4 && err == nil; k++ {
		err = c.Keep(t.Context(), fmt.Sprint("b", k), nil, fds)
	}
	if err == nil || !strings.Contains(err.Error(), "RLIMIT_NOFILE") || c.Status().Fault == "" {
		t.Errorf("%v; %+v", err, c.Status())
	}
	if rep, err := n.look(); err != nil || rep.PID != pid || rep.Items == 0 {
		t.Errorf("%+v %v", rep, err)
	}
	h := &holder{room: 3, items: map[string]Item{}}
	if m := h.keep(Item{Name: "a", FDs: []int{-1, -1}}); m.verb != done {
		t.Errorf("%s", m.body)
	}
	if m := h.keep(Item{Name: "b", FDs: []int{-1, -1}}); m.verb != refused || !strings.Contains(string(m.body), "RLIMIT_NOFILE") {
		t.Errorf("%s", m.body)
	}
	if m := h.keep(Item{Name: "a", FDs: []int{-1, -1, -1}}); m.verb != done || h.descriptors != 3 {
		t.Errorf("%s, %d", m.body, h.descriptors)
	}
}

// A thousand things that come and go leave no descriptor, process or memory behind.
func TestAThousandComeAndGo(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	r, w := pipe(t)
	keepOne(t, c, "stays", "", r)
	pid := c.Status().PID
	meta := bytes.Repeat([]byte("m"), 2000)
	before := 0
	for k := range 1000 {
		name := fmt.Sprint("pod ", k)
		if err := c.Keep(t.Context(), name, meta, []int{r, w}); err != nil {
			t.Fatal(err)
		}
		c.Forget(name)
		if k == 500 {
			before = openFDs(t, pid)
		}
	}
	rep, err := n.look()
	if err != nil || rep.PID != pid || rep.Items != 1 || rep.Descriptors != 1 {
		t.Errorf("%+v %v", rep, err)
	}
	await.OK(t, "as many descriptors as before", func() error {
		if after := openFDs(t, pid); after > before {
			return fmt.Errorf("%d, and %d before", after, before)
		}
		return nil
	})
	h := &holder{room: 3, items: map[string]Item{}}
	for range 3 {
		h.keep(Item{Name: "a", Meta: meta, FDs: []int{-1}})
		h.drop("a")
	}
	if h.descriptors != 0 || h.metaTotal != 0 || len(h.items) != 0 {
		t.Errorf("%d descriptors and %d bytes are counted where nothing is kept", h.descriptors, h.metaTotal)
	}
}

func FuzzParseMessage(f *testing.F) {
	f.Add(message{verb: keep, name: "a", body: []byte("b")}.bytes())
	f.Add([]byte("WK"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMessage(b)
		if err == nil && !bytes.Equal(m.bytes(), b) {
			t.Errorf("%x became %x", b, m.bytes())
		}
	})
}

// A connection that turns out not to be needed, since two of weftd's goroutines found another holder at once, takes nothing from the one that is.
func TestAnotherHelloCostsNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	r, _ := pipe(t)
	keepOne(t, c, "a", "", r)
	other, _, err := c.connect(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	keepOne(t, c, "b", "", r)
	if err := other.keep(Item{Name: "c", FDs: []int{r}}); err != nil {
		t.Error(err)
	}
	other.close()
	c.Forget("a")
	if rep, err := n.look(); err != nil || rep.Items != 2 || len(c.owed) != 0 {
		t.Errorf("%+v %v; not forgotten: %v", rep, err, c.owed)
	}
}

// A weftd that has handed over has no say any more: what it would keep or forget late does not take the holder back from its successor.
func TestWhoHasHandedOverKeepsNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	r, _ := pipe(t)
	keepOne(t, c, "a", "", r)
	estate, err := c.Bequeath()
	if err != nil {
		t.Fatal(err)
	}
	next := Open(t.Context(), Options{Control: n.control, Owner: n.owner, Timeout: n.timeout,
		Getenv: func(string) string { return "" }, Logger: slog.New(slog.NewTextHandler(&n.log, nil)), Inherited: &estate})
	t.Cleanup(next.Close)
	keepOne(t, next, "a", "", r)
	c.Close()
	if err := next.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	keepOne(t, c, "late", "", r)
	c.Forget("a")
	if rep, err := n.look(); err != nil || rep.Items != 1 {
		t.Errorf("%+v %v, want what the successor has kept", rep, err)
	}
	keepOne(t, next, "b", "", r)
	if rep, err := n.look(); err != nil || rep.Items != 2 {
		t.Errorf("%+v %v, want what the successor has kept", rep, err)
	}
}
