package pods

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/internal/podport"
	"weft/tunnel"
)

// plane is a data plane that only keeps account.
type plane struct {
	ports  map[tunnel.PortID]int
	next   tunnel.PortID
	fail   error
	routed []netip.Addr
	before func() // called before a port is closed
	mtus   map[tunnel.PortID]int
}

func (p *plane) AttachPod(tun int, _ []netip.Addr, _ int) (tunnel.PortID, error) {
	if p.fail != nil {
		return 0, errors.Join(p.fail, unix.Close(tun))
	}
	p.next++
	p.ports[p.next] = tun
	return p.next, nil
}

func (p *plane) Detach(id tunnel.PortID) error {
	fd, ok := p.ports[id]
	if !ok {
		return errors.New("no such port")
	}
	if p.before != nil {
		p.before()
	}
	delete(p.ports, id)
	return unix.Close(fd)
}

func (p *plane) SetMTU(id tunnel.PortID, mtu int) error {
	p.mtus[id] = mtu
	return nil
}

func (p *plane) Stats() (l []tunnel.PodStats) {
	for id := range p.ports {
		l = append(l, tunnel.PodStats{Port: id, TxPackets: uint64(id)})
	}
	return l
}
func (p *plane) Routed(addrs []netip.Addr) { p.routed = addrs }

// close is what the end of the data plane does.
func (p *plane) close() {
	for id := range p.ports {
		_ = p.Detach(id)
	}
}

func newPlane() *plane { return &plane{ports: map[tunnel.PortID]int{}, mtus: map[tunnel.PortID]int{}} }

func ips(l ...string) (out []netip.Addr) {
	for _, s := range l {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func request(id string, addrs ...string) podport.Request {
	return podport.Request{Key: podport.Key{ID: id, Interface: "eth0"}, Name: id, By: podport.ByWeft,
		Addresses: ips(addrs...), MTU: 1400, Reservation: &podport.Reservation{Dir: "/d", Network: "n"}}
}

func local() Local {
	return Local{MTU: 1472, Subnets: []netip.Prefix{netip.MustParsePrefix("10.42.1.0/24"),
		netip.MustParsePrefix("fd00:1::/64")}}
}

// descriptor is one of nothing in particular: a Set does not look into it.
func descriptor(t *testing.T) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func descriptors(t *testing.T) int {
	t.Helper()
	l, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(l)
}

// attached returns a set with pods of those ids, and its data plane, which has given them ports from 1 on.
func attached(t *testing.T, o Options, ids ...string) (*Set, *plane) {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s, p := New(o), newPlane()
	s.SetLocal(local())
	s.Serve(p, "")
	for _, id := range ids {
		if _, err := s.Attach(request(id, "10.42.1.5"+id), []int{descriptor(t)}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { p.close(); s.Close() })
	return s, p
}

// keeper has what it was given, in memory.
type keeper struct{ kept map[podport.Key]Kept }

func (k *keeper) Keep(r podport.Request, fds []int) error {
	if len(fds) == 0 {
		k.kept[r.Key] = Kept{r, k.kept[r.Key].FDs}
		return nil
	}
	fd, err := unix.Dup(fds[0])
	_ = k.Forget(r.Key)
	k.kept[r.Key] = Kept{r, []int{fd}}
	return err
}

func (k *keeper) Forget(key podport.Key) error {
	if old, ok := k.kept[key]; ok {
		delete(k.kept, key)
		return unix.Close(old.FDs[0])
	}
	return nil
}

func (k *keeper) Kept() (l []Kept, err error) {
	for _, x := range k.kept {
		fd, err := unix.Dup(x.FDs[0])
		if err != nil {
			return nil, err
		}
		l = append(l, Kept{x.Request, []int{fd}})
	}
	return l, nil
}

func TestPodsOutliveADataPlane(t *testing.T) {
	before := descriptors(t)
	s := New(Options{Logger: slog.New(slog.DiscardHandler)})
	s.SetLocal(local())
	if _, err := s.Attach(request("a", "10.42.1.5"), []int{descriptor(t)}); !errors.Is(err, control.ErrRefused) {
		t.Errorf("without a data plane: %v", err)
	}
	one := newPlane()
	s.Serve(one, "")
	for id, addrs := range map[string][]string{"a": {"10.42.1.5", "fd00:1::5"}, "b": {"10.42.1.6"}} {
		if p, err := s.Attach(request(id, addrs...), []int{descriptor(t)}); err != nil ||
			p.State != podport.Attached {
			t.Fatal(p, err)
		}
	}
	if want := ips("10.42.1.5", "10.42.1.6", "fd00:1::5"); !slices.Equal(one.routed, want) {
		t.Errorf("routed %v, want %v", one.routed, want)
	}
	if _, err := s.Attach(request("a", "10.42.1.7"), []int{descriptor(t)}); err != nil || len(one.ports) != 2 {
		t.Errorf("attached again: %v, %d ports", err, len(one.ports))
	}
	one.fail = errors.New("no memory")
	if _, err := s.Attach(request("c", "10.42.1.8"), []int{descriptor(t)}); err == nil ||
		len(s.List().Pods) != 2 {
		t.Errorf("a port that could not be made: %v", err)
	}
	if _, err := s.Attach(request("a", "10.42.1.9"), []int{descriptor(t)}); err == nil {
		t.Error("a pod was attached again without a port")
	}
	one.fail = nil
	s.retries(time.Now().Add(2 * retryAfter))
	if p := s.List().Pods[0]; p.State != podport.Attached || p.Addresses[0] != ips("10.42.1.7")[0] {
		t.Errorf("what was not replaced has no port again: %+v", p)
	}
	one.close()
	s.Serve(nil, "the kernel moves the packets")
	for _, p := range s.List().Pods {
		if p.State != podport.Waiting || !strings.Contains(p.Problem, "kernel") {
			t.Errorf("%+v", p)
		}
	}
	two := newPlane()
	s.Serve(two, "")
	if got := s.List(); len(two.ports) != 2 || got.Pods[0].State != podport.Attached ||
		got.Pods[0].SentPackets == 0 || !got.Node.Attaches {
		t.Errorf("%d ports, %+v", len(two.ports), got)
	}
	s.SetLocal(Local{Subnets: []netip.Prefix{netip.MustParsePrefix("10.42.9.0/24")}, MTU: 1472})
	if p := s.List().Pods[0]; !strings.Contains(p.Problem, "10.42.9.0/24") {
		t.Errorf("of a former subnet: %q", p.Problem)
	}
	if _, err := s.Detach(request("a").Key); err != nil || len(two.ports) != 1 {
		t.Error(err)
	}
	if _, err := s.Detach(request("a").Key); !errors.Is(err, control.ErrNotFound) {
		t.Error(err)
	}
	two.close()
	s.Close()
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func TestAddressesThatAPodCannotHave(t *testing.T) {
	s := New(Options{Logger: slog.New(slog.DiscardHandler)})
	s.Serve(newPlane(), "")
	if err := s.MayAttach(request("x", "10.42.1.7")); !errors.Is(err, control.ErrRefused) ||
		!strings.Contains(err.Error(), "subnet") {
		t.Error(err)
	}
	s.SetLocal(local())
	if _, err := s.Attach(request("a", "10.42.1.5"), []int{descriptor(t)}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for address, want := range map[string]string{
		"10.42.2.5": "subnets", "10.42.1.0": "overlay", "10.42.1.1": "gateway", "10.42.1.255": "broadcast",
		"10.42.1.5": "eth0",
		"fd00:1::":  "overlay", "fd00:1::1": "gateway", "fd00:2::7": "node's", "10.42.1.2": "", "10.42.1.254": "",
		"fd00:1::ffff:ffff:ffff:ffff": "",
	} {
		err := s.MayAttach(request("x", address))
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, control.ErrRefused) ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}

// After a restart a pod has its port again if its descriptor was kept, and else it is named, until the kernel
// is another one.
func TestPodsAfterARestart(t *testing.T) {
	before := descriptors(t)
	k := &keeper{map[podport.Key]Kept{}}
	var freed []string
	o := Options{
		File: filepath.Join(t.TempDir(), "pods.json"), Keeper: k, Boot: "1", Logger: slog.New(slog.DiscardHandler),
		Free: func(r podport.Request) error { freed = append(freed, r.ID); return nil },
	}
	s := New(o)
	s.SetLocal(local())
	s.Serve(newPlane(), "")
	named := t.TempDir() + "/ns"
	if err := os.WriteFile(named, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := request("ended", "10.42.1.7")
	ended.Netns = named
	for _, r := range []podport.Request{request("kept", "10.42.1.5"), request("lost", "10.42.1.6"), ended} {
		if _, err := s.Attach(r, []int{descriptor(t)}); err != nil {
			t.Fatal(err)
		}
	}
	s.carrier.(*plane).close()
	s.save()
	s.Close()
	_, _ = k.Forget(request("lost").Key), k.Forget(request("ended").Key)
	if err := os.Remove(named); err != nil {
		t.Fatal(err)
	}

	s = New(o)
	s.SetLocal(local())
	if s.freeOwed(t.Context(), map[podport.Key]bool{}); !slices.Equal(freed, []string{"ended"}) {
		t.Errorf("freed %v", freed)
	}
	p := newPlane()
	s.Serve(p, "")
	l := s.List().Pods
	if len(l) != 2 || l[0].State != podport.Attached || l[1].State != podport.Missing ||
		!strings.Contains(l[1].Problem, "weft attach") || len(p.ports) != 1 {
		t.Errorf("%+v", l)
	}
	if _, err := s.Attach(request("other", "10.42.1.6"), []int{descriptor(t)}); err != nil ||
		len(s.List().Pods) != 2 {
		t.Errorf("an address of a pod that is missing: %v", err)
	}
	if _, err := s.Detach(request("kept").Key); err != nil {
		t.Error(err)
	}
	p.close()
	s.save()
	s.Close()
	_ = k.Forget(request("other").Key)
	freed, o.Boot = nil, "2"
	s = New(o)
	if s.freeOwed(t.Context(), map[podport.Key]bool{}); len(s.List().Pods) != 0 ||
		!slices.Equal(freed, []string{"other"}) {
		t.Errorf("after a reboot: %+v, freed %v", s.List().Pods, freed)
	}
	if after := descriptors(t); after != before || len(k.kept) != 0 {
		t.Errorf("%d descriptors, %d before; kept %v", after, before, k.kept)
	}
}

func TestAnAttachThatReplacesIsSaid(t *testing.T) {
	var log strings.Builder
	s, _ := attached(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, "1")
	if _, err := s.Attach(request("1", "10.42.1.51"), []int{descriptor(t)}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "attached") {
		t.Error(log.String())
	}
}

// forgetful is a keeper that keeps nothing.
type forgetful struct{ why error }

func (f forgetful) Keep(podport.Request, []int) error { return f.why }
func (forgetful) Forget(podport.Key) error            { return nil }
func (forgetful) Kept() ([]Kept, error)               { return nil, nil }

// Who attaches a pod is told that its descriptor is not kept, and has it attached all the same.
func TestAnAttachSaysWhatIsNotKept(t *testing.T) {
	s, _ := attached(t, Options{Keeper: forgetful{errors.New("the holder is stopped")}})
	got, err := s.Attach(request("1", "10.42.1.7"), []int{descriptor(t)})
	if err != nil || got.State != podport.Attached || !strings.Contains(got.Note, "stopped") {
		t.Errorf("%+v, %v", got, err)
	}
}
