package custody

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/rights"
	"weft/cmd/internal/systemdtest"
	"weft/test/await"
)

// opened is a weftd's store in a service manager, without what came.
func opened(f *systemdtest.Manager) *manager {
	env := f.Env()
	env["LISTEN_FDS"] = "0"
	m, _, _, _ := openManager(func(name string) string { return env[name] })
	return m
}

// settled returns once the service manager has read everything.
func settled(t *testing.T, m *manager) {
	t.Helper()
	if err := m.barrier(); err != nil {
		t.Fatal(err)
	}
}

// by starts cmd as the service manager does, with what is in its store.
func by(f *systemdtest.Manager) func(*exec.Cmd) error {
	return func(cmd *exec.Cmd) error {
		release, err := f.Hand(cmd)
		if err != nil {
			return err
		}
		defer release()
		return cmd.Start()
	}
}

// The service manager's store has what is kept, with what was said of it, also when it was replaced, and nothing that was forgotten.
func TestTheServiceManagersStore(t *testing.T) {
	t.Parallel()
	f := systemdtest.New(t, 20)
	m := opened(f)
	r, w := pipe(t)
	long := strings.Repeat("n", MaxName)
	for _, i := range []Item{
		{"a", []byte("old"), []int{r}}, {"a", []byte("about a"), []int{r, w}}, {"b", nil, []int{w}}, {long, make([]byte, MaxMeta), []int{w}}, {"c", nil, []int{w}},
	} {
		if err := m.keep(i); err != nil {
			t.Fatal(err)
		}
	}
	m.forget("c")
	settled(t, m)
	if f.Count() != m.used || m.used != 1+3+2+2 {
		t.Errorf("%d are stored, and %d counted", f.Count(), m.used)
	}
	for range 3 {
		next := &manager{socket: f.Path, most: f.Most, stored: map[string][]string{}, alive: -1}
		items, _, faults := next.takeUp(f.Handed())
		if len(items) != 3 || items[0].Name != "a" || string(items[0].Meta) != "about a" || len(items[0].FDs) != 2 || items[2].Name != long || len(faults) != 0 || next.used != m.used {
			t.Fatalf("%+v %v", items, faults)
		}
		if _, err := unix.Write(items[0].FDs[1], []byte("x")); err != nil {
			t.Error(err)
		}
		if n, err := unix.Read(items[0].FDs[0], make([]byte, 8)); n != 1 || err != nil {
			t.Error(n, err)
		}
		for _, i := range items {
			rights.Close(i.FDs)
		}
		if err := next.keep(Item{"a", []byte("about a"), []int{r, w}}); err != nil { // the names are other ones than before
			t.Error(err)
		}
		settled(t, next)
		if f.Count() != m.used {
			t.Errorf("%d are stored", f.Count())
		}
	}
}

// A weftd that dies between two messages leaves what was there before, or nothing; what is not whole, or of no use, leaves the store.
func TestWhatIsNotWholeLeavesTheStore(t *testing.T) {
	t.Parallel()
	f := systemdtest.New(t, 100)
	m := opened(f)
	r, w := pipe(t)
	if err := m.keep(Item{"a", []byte("old"), []int{r, w}}); err != nil {
		t.Fatal(err)
	}
	before := m.stored["a"]
	m.stored["a"] = nil // it dies before it has removed the old ones
	if err := m.keep(Item{"a", []byte("new"), []int{r, w}}); err != nil {
		t.Fatal(err)
	}
	after := m.stored["a"]
	for _, state := range []string{"FDNAME=weft-0-1-0", "FDNAME=weft-0-1-1", "FDNAME=weft-nonsense", "FDNAME=weft-0-2-1"} {
		if err := m.notify("FDSTORE=1\nFDPOLL=0\n"+state, []int{w}); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, m)
	next := func() (*manager, []Item) {
		n := &manager{socket: f.Path, most: f.Most, stored: map[string][]string{}, alive: -1}
		items, _, _ := n.takeUp(f.Handed())
		settled(t, n)
		for _, i := range items {
			rights.Close(i.FDs)
		}
		return n, items
	}
	half := f.Handed()
	n, items := next()
	if len(items) != 1 || string(items[0].Meta) != "new" || !slices.Equal(n.stored["a"], after) || f.Count() != 4 || n.used != 4 {
		t.Errorf("%+v, %d stored, %d counted", items, f.Count(), n.used)
	}
	// Of the new one something is missing, and the old one is there.
	rights.Close(half[after[2]])
	delete(half, after[2])
	n = &manager{socket: f.Path, most: f.Most, stored: map[string][]string{}, alive: -1}
	items, _, _ = n.takeUp(half)
	if len(items) != 1 || string(items[0].Meta) != "old" || !slices.Equal(n.stored["a"], before) {
		t.Errorf("%+v", items)
	}
	for _, i := range items {
		rights.Close(i.FDs)
	}
}

// A store that is full, or that nobody reads, is said, with what to do.
func TestAStoreThatDoesNotKeepIsSaid(t *testing.T) {
	t.Parallel()
	f := systemdtest.New(t, 4)
	r, _ := pipe(t)
	var log strings.Builder
	c := Open(t.Context(), Options{Control: filepath.Join(t.TempDir(), "s"), Owner: "x", Getenv: func(name string) string {
		return map[string]string{"NOTIFY_SOCKET": f.Path, "FDSTORE": "4"}[name]
	}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	defer c.Close()
	if err := c.Keep(t.Context(), "a", nil, []int{r}); err != nil {
		t.Fatal(err)
	}
	if s := c.Status(); s.By != ByManager || s.Items != 1 || s.Descriptors != 1 || s.PID != 0 {
		t.Errorf("%+v", s)
	}
	if err := c.Keep(t.Context(), "b", nil, []int{r}); err == nil || !strings.Contains(err.Error(), "FileDescriptorStoreMax=") || !strings.Contains(c.Status().Fault, `"b"`) {
		t.Errorf("%v, %+v", err, c.Status())
	}
	c.Forget("b")
	if s := c.Status(); s.Fault != "" || s.Items != 1 {
		t.Errorf("%+v", s)
	}
	m := &manager{socket: f.Path + "-not-there", most: 100, stored: map[string][]string{}, alive: -1}
	if err := m.keep(Item{"a", nil, []int{r}}); err == nil || !errors.Is(err, os.ErrNotExist) || m.used != 0 {
		t.Errorf("%v, %d", err, m.used)
	}
	if m := (&manager{}); m.notify("x", nil) == nil {
		t.Error("nobody was told, and nothing said so")
	}
}

// Without a store of the service manager there is none, whatever else it says.
func TestNoStore(t *testing.T) {
	t.Parallel()
	for _, env := range []map[string]string{
		{}, {"NOTIFY_SOCKET": "/x"}, {"FDSTORE": "5"}, {"NOTIFY_SOCKET": "/x", "FDSTORE": "0"}, {"NOTIFY_SOCKET": "/x", "FDSTORE": "-1"}, {"NOTIFY_SOCKET": "/x", "FDSTORE": "many"},
		{"LISTEN_PID": "1", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "weft-alive:weft-a"}, {"LISTEN_PID": strconv.Itoa(os.Getpid()), "LISTEN_FDS": "-1"},
	} {
		if m, items, _, faults := openManager(func(name string) string { return env[name] }); m != nil || len(items) > 0 || len(faults) > 0 {
			t.Errorf("%v: %+v %v %v", env, m, items, faults)
		}
	}
}

// Under a service manager with a store no holder is started, and the next weftd goes on with what the store has, twenty times in a row.
func TestAConnectionOutlivesRestartsByTheServiceManager(t *testing.T) {
	t.Parallel()
	f := systemdtest.New(t, 20)
	a, b := newPod(t, 11), newPod(t, 12)
	control := filepath.Join(t.TempDir(), "weftd.sock")
	s := &switches{t: t, control: control, start: by(f)}
	first := []*os.File{os.NewFile(uintptr(dup(t, a.tun)), "a"), os.NewFile(uintptr(dup(t, b.tun)), "b")}
	s.env = func() []string { return []string{"NOTIFY_SOCKET=" + f.Path, "FDSTORE=20"} }
	s.next(first...)
	for _, file := range first {
		file.Close()
	}
	t.Cleanup(func() { s.stop(syscall.SIGKILL) })
	say := echoes(t, a, b)
	if err := say("before"); err != nil {
		t.Fatal(err)
	}
	for k := range 20 {
		s.stop([]syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[k%2])
		said := make(chan error, 1)
		go func() { said <- say(fmt.Sprint("restart ", k)) }()
		if line := s.next(); !strings.Contains(line, ByManager) {
			t.Errorf("kept by %s", line)
		}
		if err := <-said; err != nil {
			t.Fatalf("restart %d: %v", k, err)
		}
	}
	if f.Count() != 5 {
		t.Errorf("%d are stored", f.Count())
	}
	if _, err := os.Lstat(SocketFor(control)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a holder's socket: %v", err)
	}
}

// What a holder has moves to the store of a unit that has got one, and the holder ends.
func TestAStoreTakesOverFromAHolder(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	r, _ := pipe(t)
	keepOne(t, c, "a", "about a", r)
	c.Close()
	f := systemdtest.New(t, 20)
	n.env = f.Env()
	c = n.weftd()
	if items, _ := c.Kept(""); len(items) != 1 || string(items[0].Meta) != "about a" {
		t.Errorf("%+v", items)
	}
	if s := c.Status(); s.By != ByManager || s.Items != 1 || f.Count() != 3 {
		t.Errorf("%+v, %d stored", s, f.Count())
	}
	n.ended()
	await.OK(t, "how long ago it was alive", func() error {
		m := &manager{socket: f.Path, most: 20, stored: map[string][]string{}, alive: -1}
		items, away, _ := m.takeUp(f.Handed())
		for _, i := range items {
			rights.Close(i.FDs)
		}
		if m.alive < 0 || away <= 0 || away > StaleAfter {
			return fmt.Errorf("%v", away)
		}
		return unix.Close(m.alive)
	})
}

// A holder ends with the first process of its container, also when that only waits for the weftd that serves.
func TestAHolderEndsWithItsContainer(t *testing.T) {
	for minder, ends := range map[int]bool{0: false, 7: false, 1: true} {
		c := &Custody{o: Options{Minder: minder, Getenv: func(string) string { return "" }}}
		if why := c.endsWithUs(); (why != "") != ends {
			t.Errorf("minder %d: %q", minder, why)
		}
	}
}
