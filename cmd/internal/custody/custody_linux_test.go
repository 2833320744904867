package custody

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
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
	"weft/test/systemdtest"
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
		_, err = (&session{c}).report(message{Verb: verbLook})
		fmt.Println(err)
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
	store   *systemdtest.Manager // nil for none
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
	return n.open(nil)
}

func (n *node) open(left *Left) *Custody {
	o := Options{Control: n.control, Owner: n.owner, Timeout: n.timeout, Left: left,
		Getenv: func(string) string { return "" }, Logger: slog.New(slog.NewTextHandler(&n.log, nil))}
	if n.store != nil {
		env := n.store.Env()
		o.Getenv = func(name string) string { return env[name] }
		o.handed = map[int]string{}
		for name, fds := range n.store.Handed() {
			for _, fd := range fds {
				if left != nil {
					rights.Close([]int{fd})
					continue
				}
				o.handed[fd] = name
			}
		}
	}
	c := Open(n.t.Context(), o)
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

// put keeps fds, and waits until they are.
func put(c *Custody, name, meta string, fds ...int) error {
	if err := c.Put(Item{Name: name, Meta: []byte(meta), FDs: fds}); err != nil {
		return err
	}
	return c.Wait(context.Background(), name)
}

// take is what the last weftd left, by name, as "meta/number of descriptors". It closes the descriptors.
func take(c *Custody) map[string]string {
	all := map[string]string{}
	items, _ := c.Take("")
	for _, i := range items {
		all[i.Name] = fmt.Sprintf("%s/%d", i.Meta, len(i.FDs))
		rights.Close(i.FDs)
	}
	return all
}

func keepOne(t *testing.T, c *Custody, name, meta string, fds ...int) {
	t.Helper()
	if err := put(c, name, meta, fds...); err != nil {
		t.Fatal(err)
	}
}

// onEach runs f with each shelf.
func onEach(t *testing.T, f func(t *testing.T, n *node, by string)) {
	t.Run(ByHolder, func(t *testing.T) { f(t, newNode(t), ByHolder) })
	t.Run(ByManager, func(t *testing.T) {
		n := newNode(t)
		n.store = systemdtest.New(t, 20)
		f(t, n, ByManager)
	})
}

// shelved is how many descriptors n's shelf has, the index not counted.
func (n *node) shelved() int {
	if n.store != nil {
		return n.store.Count() - 1
	}
	r, err := n.look()
	if err != nil {
		n.t.Fatal(err)
	}
	return r.Descriptors
}

// The next weftd gets what the last one had kept, with its meta, a hundred times, and no descriptor is left
// over.
func TestTheNextWeftdGetsWhatWasKept(t *testing.T) {
	onEach(t, func(t *testing.T, n *node, by string) {
		c := n.weftd()
		if s := c.Status(); s != (Status{}) {
			t.Errorf("before anything is kept: %+v", s)
		}
		if _, err := n.look(); !errors.Is(err, errNoHolder) {
			t.Errorf("a holder before there is anything to keep: %v", err)
		}
		r, w := pipe(t)
		x, _ := pipe(t)
		keepOne(t, c, "pod a", "old", r)
		keepOne(t, c, "pod a", "about a", r, w)
		keepOne(t, c, "b", "noted when it came", x)
		numbers := slices.Clone(c.items["b"].Numbers)
		if err := put(c, "b", "about b"); err != nil {
			t.Error(err)
		}
		if put(c, "nobody", "") == nil {
			t.Error("something is noted of what is not kept")
		}
		if now := c.items["b"].Numbers; !slices.Equal(now, numbers) { // else its descriptors were away for a moment
			t.Errorf("numbers %v, and %v before", now, numbers)
		}
		y, _ := pipe(t)
		keepOne(t, c, "c", "about c", y)
		if err := c.DropOne(t.Context(), "c"); err != nil {
			t.Error(err)
		}
		s := c.Status()
		if s.By != by || s.Items != 2 || s.Descriptors != 3 || s.Fault != "" || n.shelved() != 3 {
			t.Errorf("%+v, %d shelved", s, n.shelved())
		}
		before := 0
		for k := range 100 {
			c.Close()
			c = n.weftd()
			items, _ := c.Take("pod ")
			if len(items) != 1 || string(items[0].Meta) != "about a" || len(items[0].FDs) != 2 {
				t.Fatalf("%+v", items)
			}
			if _, err := unix.Write(items[0].FDs[1], []byte("x")); err != nil {
				t.Error(err)
			}
			if k, err := unix.Read(items[0].FDs[0], make([]byte, 8)); k != 1 || err != nil {
				t.Error(k, err)
			}
			keepOne(t, c, "pod a", "about a", items[0].FDs...) // the same descriptors get other numbers
			rights.Close(items[0].FDs)
			if got := take(c); len(got) != 1 || got["b"] != "about b/1" || c.Status() != s || n.shelved() != 3 {
				t.Fatalf("%v; %+v, %d shelved", got, c.Status(), n.shelved())
			}
			if k == 1 {
				before = openFDs(t, os.Getpid())
			}
		}
		await.OK(t, "as many descriptors as before", func() error {
			if after := openFDs(t, os.Getpid()); after > before {
				return fmt.Errorf("%d, and %d before", after, before)
			}
			return nil
		})
		if err := c.Drop(t.Context(), ""); err != nil {
			t.Error(err)
		}
		if s := c.Status(); s != (Status{}) {
			t.Errorf("%+v", s)
		}
		if n.ended(); n.store != nil && n.store.Count() != 0 {
			t.Errorf("%d are stored", n.store.Count())
		}
	})
}

// The program before leaves everything to the next in its process. That changes nothing until Begin, so that
// the one before may come back.
func TestAProgramLeavesToTheNext(t *testing.T) {
	onEach(t, func(t *testing.T, n *node, by string) {
		c := n.weftd()
		r, w := pipe(t)
		keepOne(t, c, "a", "about a", r)
		keepOne(t, c, "b", "about b", w)
		before := c.Status()
		for range 3 {
			left, err := c.Leave()
			if err != nil {
				t.Fatal(err)
			}
			again, err := c.Leave()
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			gaveUp := n.open(&left)
			keepOne(t, gaveUp, "a", "changed", r)
			if err := gaveUp.Drop(t.Context(), "b"); err != nil {
				t.Error(err)
			}
			gaveUp.Close()
			c = n.open(&again)
			if got := take(c); len(got) != 2 || got["a"] != "about a/1" || got["b"] != "about b/1" ||
				c.Status().By != "" {
				t.Errorf("%v; %+v", got, c.Status())
			}
			keepOne(t, c, "c", "", r)
			if err := c.Drop(t.Context(), "c"); err != nil {
				t.Error(err)
			}
			c.Begin()
			if err := c.Wait(t.Context(), ""); err != nil || c.Status() != before || n.shelved() != 2 {
				t.Errorf("%v: %+v, %d shelved", err, c.Status(), n.shelved())
			}
		}
	})
}

// An item of which the shelf lacks a descriptor, as after a death between two steps, does not count, and its
// rest is given back.
func TestWhatIsNotWholeIsGivenBack(t *testing.T) {
	onEach(t, func(t *testing.T, n *node, by string) {
		c := n.weftd()
		r, w := pipe(t)
		x, y := pipe(t)
		keepOne(t, c, "a", "about a", r, w)
		keepOne(t, c, "b", "about b", x)
		if err := errors.Join(c.shelfNow().Remove(2), c.shelfNow().Store(99, y), c.shelfNow().Flush()); err != nil {
			t.Fatal(err)
		}
		c.Close()
		c = n.weftd()
		if err := c.Wait(t.Context(), ""); err != nil {
			t.Error(err)
		}
		if got := take(c); len(got) != 1 || got["b"] != "about b/1" || n.shelved() != 1 {
			t.Errorf("%v, %d shelved", got, n.shelved())
		}
	})
}

// shelfNow is c's shelf, while its goroutine does nothing.
func (c *Custody) shelfNow() shelf {
	if c.systemd != nil {
		return c.systemd
	}
	return c.session
}

// An earlier weft gave the store's descriptors other names. They are given back.
func TestAnEarlierStoreIsGivenBack(t *testing.T) {
	n := newNode(t)
	n.store = systemdtest.New(t, 20)
	r, w := pipe(t)
	old := systemd{socket: n.store.Path, most: 20}
	for name, fd := range map[string]int{"weft-alive": r, "weft-0123456789abcdef-7-0": w} {
		if err := old.notify("FDSTORE=1\nFDPOLL=0\nFDNAME="+name, []int{fd}); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Flush(); err != nil || n.store.Count() != 2 {
		t.Fatal(n.store.Count(), err)
	}
	c := n.weftd()
	if got := take(c); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if err := old.Flush(); err != nil || n.store.Count() != 0 ||
		!strings.Contains(n.log.String(), "descriptors=2") {
		t.Errorf("%d are stored: %v", n.store.Count(), err)
	}
}

// What a holder has moves to the store of a unit that has got one, and the holder ends.
func TestAStoreTakesOverFromAHolder(t *testing.T) {
	n := newNode(t)
	c := n.weftd()
	r, _ := pipe(t)
	keepOne(t, c, "a", "about a", r)
	c.Close()
	n.store = systemdtest.New(t, 20)
	for range 2 {
		c = n.weftd()
		if err := c.Wait(t.Context(), ""); err != nil {
			t.Error(err)
		}
		if s := c.Status(); s.By != ByManager || s.Items != 1 || n.shelved() != 1 {
			t.Errorf("%+v, %d shelved", s, n.shelved())
		}
		n.ended()
		if items, away := c.Take(""); len(items) != 1 || string(items[0].Meta) != "about a" || away <= 0 ||
			away > StaleAfter {
			t.Errorf("%+v %v", items, away)
		} else {
			rights.Close(items[0].FDs)
		}
		c.Close()
	}
}

// A store that is full takes no part of an item, and says so until there is room.
func TestAFullStoreIsSaid(t *testing.T) {
	n := newNode(t)
	n.store = systemdtest.New(t, 3)
	c := n.weftd()
	r, w := pipe(t)
	x, _ := pipe(t)
	keepOne(t, c, "a", "", r)
	no := (*refusedError)(nil)
	if err := put(c, "b", "", w, x); !errors.As(err, &no) || c.Status().Fault == "" || n.shelved() != 1 {
		t.Errorf("%v; %+v, %d shelved", err, c.Status(), n.shelved())
	}
	if err := c.DropOne(t.Context(), "a"); err != nil || c.Status().Fault != "" || n.shelved() != 2 {
		t.Errorf("%v; %+v, %d shelved", err, c.Status(), n.shelved())
	}
}

// Who has no one to keep anything says so, but not of what is optional.
func TestNobodyKeeps(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"no control socket": {}, "a unit without a store": {"NOTIFY_SOCKET": "/nowhere", "FDSTORE": "0"},
		"nonsense": {"FDSTORE": "many"},
	} {
		c := Open(t.Context(), Options{
			Owner: "x", Timeout: time.Minute, Getenv: func(k string) string { return env[k] },
			Logger: slog.New(slog.DiscardHandler),
		})
		r, _ := pipe(t)
		if err := c.Put(Item{Name: "port", FDs: []int{r}, Optional: true}); err != nil {
			t.Error(err)
		}
		if err := c.Wait(t.Context(), ""); err != nil || c.Status() != (Status{Ports: 1, PortDescriptors: 1}) {
			t.Errorf("%s: %v, %+v", name, err, c.Status())
		}
		if err := put(c, "pod", "", r); !errors.Is(err, errNobody) || c.Status().Fault == "" {
			t.Errorf("%s: %v, %+v", name, err, c.Status())
		}
		if err := c.DropOne(t.Context(), "pod"); err != nil || c.Status().Fault != "" {
			t.Errorf("%s: %v, %+v", name, err, c.Status())
		}
		c.Close()
	}
}
