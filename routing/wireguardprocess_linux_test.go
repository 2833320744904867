package routing

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/internal/wireguard"
	"weft/test/await"
	"weft/test/netns"
)

// cipherKeeper plays who starts and keeps a node's processes, which are goroutines here.
type cipherKeeper struct {
	t    *testing.T
	wg   sync.WaitGroup
	mu   sync.Mutex     // protects what follows
	kept map[string]int // lines
	runs int            // how many processes there are
	made int            // and were

	lacks   string // what a process says that it could not give up
	refused error  // why none can be started
}

func newCipherKeeper(t *testing.T) *cipherKeeper {
	c := &cipherKeeper{t: t, kept: map[string]int{}}
	t.Cleanup(func() {
		for _, name := range []string{"flannel-wg", "flannel-wg-v6"} {
			c.forget(name)
		}
		c.wg.Wait()
	})
	return c
}

func duplicateOf(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3) }

func (c *cipherKeeper) start(name string, line, tun *os.File) (int, error) {
	if err := c.refuses(); err != nil {
		return -1, err
	}
	l, err := duplicateOf(int(line.Fd()))
	d, err2 := duplicateOf(int(tun.Fd()))
	if err := errors.Join(err, err2); err != nil {
		return -1, err
	}
	c.count(1)
	c.wg.Go(func() {
		defer c.count(-1)
		if err := ServeWireGuard(c.t.Context(), WireGuardServed{Device: name, Version: "v1", Lacks: c.lacks}, l, d); err != nil && c.t.Context().Err() == nil {
			c.t.Errorf("%s: %v", name, err)
		}
	})
	return -1, nil
}

// refuses is an error while no process can be started.
func (c *cipherKeeper) refuses() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

func (c *cipherKeeper) refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = err
}

func (c *cipherKeeper) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs, c.made = c.runs+n, c.made+max(n, 0)
}

func (c *cipherKeeper) counts() (runs, made int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs, c.made
}

func (c *cipherKeeper) keep(name string, line WireGuardLine) {
	d, err := duplicateOf(line.FD)
	if err != nil {
		c.t.Error(err)
		return
	}
	c.forget(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept[name] = d
}

func (c *cipherKeeper) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fd, ok := c.kept[name]; ok {
		_ = unix.Close(fd)
		delete(c.kept, name)
	}
}

// next are the processes as a next weftd finds them, of which version it is.
func (c *cipherKeeper) next(version string) *WireGuardProcesses {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := map[string]WireGuardLine{}
	for name, fd := range c.kept {
		d, err := duplicateOf(fd)
		if err != nil {
			c.t.Fatal(err)
		}
		kept[name] = WireGuardLine{FD: d, Process: -1}
	}
	p := NewWireGuardProcesses(WireGuardProcessOptions{
		Start: c.start, Keep: c.keep, Forget: c.forget, Kept: kept, Settled: func() bool { return true }, Version: version, Logger: slog.New(slog.DiscardHandler),
	})
	c.t.Cleanup(p.Close)
	return p
}

func handshakes(t *testing.T, n *vtepNode) (all []time.Time) {
	t.Helper()
	ps, err := n.b.(*Encrypter).EncryptedPeers(await.Patience)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ps {
		all = append(all, p.Handshake)
	}
	return all
}

// TestWireGuardSessionsGoOn has a node's processes carry packets while no backend has them, and the next one take them up with their sessions. They
// follow the underlay's address and new peers, are replaced when they die, and end when they are not wanted or kept any more.
func TestWireGuardSessionsGoOn(t *testing.T) {
	nodes, _ := hosts(t, 3)
	a, b, c := nodes[0], nodes[1], nodes[2]
	keeper := newCipherKeeper(t)
	dir := t.TempDir()
	first := keeper.next("v1")
	a.processes = first
	stop := a.openWireGuard(t, "", dir)
	for _, n := range nodes[1:] {
		n.openWireGuard(t, "", t.TempDir())
	}
	joinVTEPs(t, nodes[:2])
	for _, six := range []bool{false, true} {
		hears(t, a, b, six)
		hears(t, b, a, six)
	}
	before := handshakes(t, a)
	await.True(t, "no handshake is under way", func() bool { // both ends may have begun one
		time.Sleep(200 * time.Millisecond)
		last := before
		before = handshakes(t, a)
		return fmt.Sprint(last) == fmt.Sprint(before)
	})
	if st := a.b.Status(); len(st.Processes) != 2 || st.Processes[0] != (WireGuardProcess{"flannel-wg", os.Getpid(), "v1"}) || len(st.Notes) > 0 {
		t.Errorf("%+v", st)
	}
	stop()
	first.Close()
	for _, six := range []bool{false, true} { // nobody is there but the processes
		hears(t, a, b, six)
		hears(t, b, a, six)
	}
	second := keeper.next("v2")
	a.processes = second
	stop = a.openWireGuard(t, "", dir)
	joinVTEPs(t, nodes[:2])
	hears(t, a, b, false)
	if after := handshakes(t, a); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("handshakes %v, and now %v", before, after)
	}
	if runs, made := keeper.counts(); runs != 2 || made != 2 {
		t.Errorf("%d processes run of %d", runs, made)
	}
	if got := a.b.Status().Notes; len(got) != 2 {
		t.Errorf("the processes are of another version, and the notes are %q", got)
	}
	joinVTEPs(t, nodes)
	hears(t, c, a, false)
	hears(t, a, c, true)
	if n := second.Ended(); n != 0 {
		t.Errorf("%d have ended", n)
	}

	// One ends without a word to whoever has it.
	if err := keeper.kill("flannel-wg"); err != nil {
		t.Fatal(err)
	}
	await.True(t, "another process", func() bool { _, made := keeper.counts(); return made == 3 })
	hears(t, b, a, false)
	hears(t, a, c, true) // by the other one, which goes on
	if n := second.Ended(); n != 1 {
		t.Errorf("%d have ended, want 1", n)
	}

	// While none can be started the routes stay: else packets would leave in plain.
	keeper.refuse(errors.New("none can be started"))
	if _, _, err := a.b.(*Encrypter).ReplaceProcesses(t.Context()); err == nil || len(a.b.Status().Processes) > 0 {
		t.Errorf("%v, %v: want none", err, a.b.Status().Processes)
	}
	var routes string
	err := a.k.Do(func() (err error) { routes, err = netns.TryIP("route show dev flannel-wg"); return err })
	if err != nil || !strings.Contains(routes, "10.") {
		t.Errorf("the routes by a device without a process: %q, %v", routes, err)
	}
	keeper.refuse(nil)
	await.True(t, "processes", func() bool { _, made := keeper.counts(); return made == 5 })
	hears(t, b, a, false)
	old, after, err := a.b.(*Encrypter).ReplaceProcesses(t.Context())
	if _, made := keeper.counts(); err != nil || len(old) != 2 || len(after) != 2 || made != 7 || second.Ended() != 1 {
		t.Errorf("%v, %v, %v: %d processes were made", old, after, err, made)
	}
	hears(t, b, a, false)
	hears(t, a, c, true)
	stop()
	second.Retain(nil)
	await.True(t, "no process", func() bool { runs, _ := keeper.counts(); return runs == 0 })
}

// TestWhatAnotherWeftdChangedIsPutBack: while a hand-over is tried the one that gives changes nothing, and if it goes on, its peers are back at once.
func TestWhatAnotherWeftdChangedIsPutBack(t *testing.T) {
	nodes, _ := hosts(t, 2)
	a, b := nodes[0], nodes[1]
	keeper, dir := newCipherKeeper(t), t.TempDir()
	a.processes = keeper.next("v1")
	a.makeWireGuard(t, "", dir) // and nobody runs it, so that nothing but what follows has it look
	b.openWireGuard(t, "", t.TempDir())
	joinVTEPs(t, nodes)
	hears(t, a, b, false)
	old := a.b.(*Encrypter)
	defer func() {
		if err := old.Close(); err != nil {
			t.Error(err)
		}
	}()
	look := func() error {
		_, _, err := old.settle(t.Context(), kernel.Change(old.dirty.Swap(0)))
		return err
	}
	// Of two sets only WireGuard knows the difference, so that the kernel tells nobody of it.
	right := lease.Set{Config: lease.NetworkConfig{EnableIPv4: true, EnableIPv6: true, Network: net4, IPv6Network: net6}, Own: a.own, Peers: []lease.Record{b.own}}
	wrong := right
	wrong.Peers = []lease.Record{b.own}
	wrong.Peers[0].BackendData, wrong.Peers[0].BackendV6Data = wireGuardData(wireguard.PublicKey{9}, DefaultWireGuardPort), wireGuardData(wireguard.PublicKey{9}, DefaultWireGuardPort6)
	key := b.b.(*Encrypter).PublicKey()
	have := func(want wireguard.PublicKey) error {
		ps, err := old.EncryptedPeers(await.Patience)
		if err != nil || len(ps) != 2 || ps[0].Key != want || ps[1].Key != want {
			return fmt.Errorf("peers %v, %v; want %v on each device", ps, err, want)
		}
		return nil
	}
	old.Pause()
	if err := errors.Join(old.Apply(t.Context(), wrong), look(), have(key), old.Apply(t.Context(), right)); err != nil {
		t.Error(err)
	}
	a.processes = keeper.next("v1")
	stop := a.openWireGuard(t, "", dir)
	if err := errors.Join(a.b.Apply(t.Context(), wrong), have(wireguard.PublicKey{9})); err != nil {
		t.Error(err)
	}
	stop()
	old.Resume()
	if err := errors.Join(look(), have(key)); err != nil {
		t.Errorf("what the other one left: %v", err)
	}
	hears(t, a, b, false)
	hears(t, b, a, true)
}

// TestAProcessOfNoDeviceEnds: with another "Mode" the second device's process is nobody's, and the first one's goes on.
func TestAProcessOfNoDeviceEnds(t *testing.T) {
	nodes, _ := hosts(t, 1)
	a := nodes[0]
	keeper, dir := newCipherKeeper(t), t.TempDir()
	first := keeper.next("v1")
	a.processes = first
	stop := a.openWireGuard(t, "", dir)
	joinVTEPs(t, nodes)
	if runs, _ := keeper.counts(); runs != 2 {
		t.Fatalf("%d processes run, want 2", runs)
	}
	stop()
	first.Close()
	a.processes = keeper.next("v1")
	a.openWireGuard(t, `,"Mode":"auto"`, dir)
	joinVTEPs(t, nodes)
	await.True(t, "one process", func() bool { runs, _ := keeper.counts(); return runs == 1 })
	if _, made := keeper.counts(); made != 2 {
		t.Errorf("%d processes were made, want the 2 of before", made)
	}
}

// TestWhatAProcessKeepsIsSaid: a process has no log, and tells weftd which rights the kernel did not let it give up.
func TestWhatAProcessKeepsIsSaid(t *testing.T) {
	nodes, _ := hosts(t, 1)
	a := nodes[0]
	keeper := newCipherKeeper(t)
	keeper.lacks = "files: this kernel has no landlock"
	a.processes = keeper.next("v1")
	a.openWireGuard(t, `,"Mode":"auto"`, t.TempDir())
	joinVTEPs(t, nodes)
	if notes := strings.Join(a.b.Status().Notes, "\n"); !strings.Contains(notes, "keeps rights") || !strings.Contains(notes, keeper.lacks) {
		t.Errorf("notes %q", notes)
	}
}

// kill ends a process.
func (c *cipherKeeper) kill(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return unix.Sendmsg(c.kept[name], []byte("e"), nil, nil, unix.MSG_NOSIGNAL)
}
