package custody

import (
	"encoding/json"
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

// fresh is the store as the next weftd finds it, before it has taken anything up.
func fresh(f *systemdtest.Manager) *manager {
	m := newManager(f.Path)
	m.most = f.Most
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
	x, y := pipe(t)
	z, _ := pipe(t)
	long := strings.Repeat("n", MaxName)
	for _, i := range []Item{
		{"a", []byte("old"), []int{r}}, {"a", []byte("about a"), []int{r, w}}, {"b", nil, []int{x}}, {long, make([]byte, MaxMeta), []int{y}}, {"c", nil, []int{z}},
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
		next := fresh(f)
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
	x, _ := pipe(t)
	if err := m.keep(Item{"a", []byte("old"), []int{r, w}}); err != nil {
		t.Fatal(err)
	}
	// It dies before it has removed what is no more wanted: r is there once, under the name that it has had.
	old := m.stored["a"]
	after := stored{label: "weft-0-2-0", at: []string{old.at[0], "weft-0-2-2"}}
	m.turn++
	if err := m.store(Item{"a", []byte("new"), []int{r, x}}, after.label, after.at, map[string]int{after.at[1]: x}); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"FDNAME=weft-1-1-0", "FDNAME=weft-1-1-1", "FDNAME=weft-nonsense", "FDNAME=weft-1-2-1"} {
		of, _ := pipe(t)
		if err := m.notify("FDSTORE=1\nFDPOLL=0\n"+state, []int{of}); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, m)
	taken := func() (*manager, []Item) {
		n := fresh(f)
		items, _, _ := n.takeUp(f.Handed())
		settled(t, n)
		for _, i := range items {
			rights.Close(i.FDs)
		}
		return n, items
	}
	half := f.Handed()
	n, items := taken()
	if len(items) != 1 || string(items[0].Meta) != "new" || !slices.Equal(n.stored["a"].names(), after.names()) || f.Count() != 4 || n.used != 4 {
		t.Errorf("%+v, %d stored, %d counted", items, f.Count(), n.used)
	}
	// Of the new one something is missing, and the old one is there.
	rights.Close(half[after.at[1]])
	delete(half, after.at[1])
	n = fresh(f)
	items, _, _ = n.takeUp(half)
	if len(items) != 1 || string(items[0].Meta) != "old" || !slices.Equal(n.stored["a"].names(), old.names()) {
		t.Errorf("%+v", items)
	}
	for _, i := range items {
		rights.Close(i.FDs)
	}
}

// Where the kernel does not say which descriptors are the same, what is kept again is there all the same.
func TestAStoreWithoutAComparison(t *testing.T) {
	t.Parallel()
	f := systemdtest.New(t, 20)
	m := opened(f)
	m.same = func(int, int) (bool, error) { return false, unix.ENOSYS }
	r, w := pipe(t)
	for _, meta := range []string{"first", "second", "third"} {
		if err := m.keep(Item{"a", []byte(meta), []int{r, w}}); err != nil {
			t.Fatal(err)
		}
		settled(t, m)
		n := fresh(f)
		items, _, faults := n.takeUp(f.Handed())
		if len(items) != 1 || string(items[0].Meta) != meta || len(faults) != 0 || n.used != m.used || f.Count() != 4 {
			t.Errorf("%s: %+v %v, %d stored, %d and %d counted", meta, items, faults, f.Count(), n.used, m.used)
		}
		for _, i := range items {
			rights.Close(i.FDs)
		}
		n.close()
	}
}

// What a weftd keeps that has executed another program is there for the next one, too, also what it keeps anew.
func TestTheStoreAfterAnUpgrade(t *testing.T) {
	t.Parallel()
	f := systemdtest.New(t, 20)
	open := func(handed *Inherited) *Custody {
		env := f.Env()
		env["LISTEN_FDS"] = "0"
		return Open(t.Context(), Options{Owner: "x", Inherited: handed, Getenv: func(name string) string { return env[name] }, Logger: slog.New(slog.DiscardHandler)})
	}
	r, w := pipe(t)
	x, _ := pipe(t)
	c := open(nil)
	if err := errors.Join(c.Keep(t.Context(), "a", []byte("about a"), []int{r, w}), c.Keep(t.Context(), "b", []byte("about b"), []int{x})); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		h, err := c.Bequeath()
		if err != nil {
			t.Fatal(err)
		}
		var got Stored
		for _, p := range h.Stored.Parts() {
			b, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			own, err := rights.Duplicate(p.FDs())
			if err == nil {
				err = got.Add(b, own)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		h.Stored.Close()
		successor := open(&Inherited{Items: h.Items, Stored: got})
		c.Close()
		c = successor
		if err := errors.Join(c.Begin(t.Context()), c.Keep(t.Context(), "a", []byte("more of a"), []int{w, r})); err != nil {
			t.Fatal(err)
		}
		settled(t, c.manager) // it is not waited for that the manager drops the file before
		n := fresh(f)
		items, _, faults := n.takeUp(f.Handed())
		if len(items) != 2 || string(items[0].Meta) != "more of a" || string(items[1].Meta) != "about b" || len(faults) != 0 || f.Count() != 6 || n.used != 6 {
			t.Errorf("%+v %v, %d stored, %d counted", items, faults, f.Count(), n.used)
		}
		for _, i := range items {
			rights.Close(i.FDs)
		}
		n.close()
	}
	c.Close()
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
	m := newManager(f.Path + "-not-there")
	m.most = 100
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
		m := fresh(f)
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
