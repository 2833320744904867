package pods

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/internal/podport"
	"weft/tunnel"
)

// Carrier is the data plane of a generation.
type Carrier interface {
	// AttachPod makes a port of the TUN. It takes the descriptor over, also beside an error.
	AttachPod(tun int, addrs []netip.Addr, mtu int) (tunnel.PortID, error)
	// Detach closes a port.
	Detach(tunnel.PortID) error
	SetMTU(tunnel.PortID, int) error
	// Stats are those of all ports of pods.
	Stats() []tunnel.PodStats
	// Routed says which addresses are to be reached from the host by the data plane.
	Routed(addrs []netip.Addr)
}

// Keeper keeps what would be lost with this process.
type Keeper interface {
	// Keep has the keeper make duplicates of the pod's descriptors, and take in what is known of the pod, in
	// place of what it had of the same key. Without descriptors those that it has stay.
	Keep(r podport.Request, fds []int) error
	// Forget drops what it has of a pod. It is no error if that is nothing.
	Forget(k podport.Key) error
	// Kept returns what an earlier weftd gave to be kept. The descriptors are the caller's.
	Kept() ([]Kept, error)
}

// Kept is a pod with its descriptors.
type Kept struct {
	Request podport.Request
	FDs     []int // the TUN's, and those of its podport.Settings, or fewer of them
}

// Options are what a Set is made of.
type Options struct {
	// File is where the pods are on disk; "" for nowhere.
	File string
	// Keeper may be nil.
	Keeper Keeper
	// Free frees the addresses of a pod that is gone, and whose Reservation is not nil. It may take a while, in
	// which nobody waits for it.
	Free func(podport.Request) error
	// Reserved says why the addresses of a pod, whose Reservation is not nil, are not reserved for it; nil if
	// they are, or if that cannot be told. Reserved may be nil.
	Reserved func(podport.Request) error
	// Logger is required.
	Logger *slog.Logger
	// Boot tells one run of the kernel from another: no pod outlives it. "" if that is not known.
	Boot string
}

// Set has the pods. Its methods are safe for concurrent use.
type Set struct {
	o Options
	// serial is held while what the data plane has is changed. It is taken before mu.
	serial sync.Mutex

	mu      sync.Mutex // protects what follows
	pods    map[podport.Key]*pod
	carrier Carrier // nil while there is none
	why     string  // why there is none
	local   Local
	dirty   bool              // the file is not what it has to be
	unsaved bool              // it could not be written the last time
	former  control.PodCounts // the traffic of ports that this data plane has no more
	owed    []podport.Request // pods that are gone, whose addresses are not free yet

	saving sync.Mutex // held while the file is written; before mu

	lostMu sync.Mutex // a leaf lock: the data plane's workers take it
	lost   []tunnel.PortID

	wake  chan struct{} // holds one: there is work for Run
	freed chan struct{} // holds one: there are addresses to be freed
}

// pod is one attached interface.
type pod struct {
	podport.Request
	tun     int           // our own descriptor, -1 without one
	mtu     int           // the file of the interface's MTU, -1 without one
	queue   int           // the file of the length of its queue, -1 without one
	port    tunnel.PortID // 0 without one
	state   string
	since   time.Time
	why     string    // what keeps it from having a port
	retry   time.Time // when to try again; zero for not before there is another data plane
	visible bool      // Netns is the path of its namespace in this process's file system
	inode   uint64    // of the namespace then
	failed  int       // the MTU that its interface could not be given; 0 for none
	outside bool      // its addresses are not all of the node's subnets, as was said

	// lengthened is how often its queue was found too long since that was said, at saidLong.
	lengthened int
	saidLong   time.Time
}

// newPod is a pod with the descriptors of its TUN and settings, if it has any.
func newPod(r podport.Request, fds []int) *pod {
	p := &pod{Request: r, tun: -1, mtu: -1, queue: -1}
	for i, fd := range p.own() {
		if i < len(fds) {
			*fd = fds[i]
		}
	}
	return p
}

// own are the places of p's descriptors, in their order.
func (p *pod) own() [3]*int { return [...]*int{&p.tun, &p.mtu, &p.queue} }

// fds are p's descriptors.
func (p *pod) fds() (fds []int) {
	for _, fd := range p.own() {
		if *fd >= 0 {
			fds = append(fds, *fd)
		}
	}
	return fds
}

// New returns a set with what an earlier run left.
func New(o Options) *Set {
	s := &Set{o: o, pods: map[podport.Key]*pod{}, why: "weftd has just started", wake: make(chan struct{}, 1),
		freed: make(chan struct{}, 1)}
	s.recall()
	return s
}

// MayAttach returns nil if Attach would try. Its error is one of package control.
func (s *Set) MayAttach(r podport.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mayAttach(r)
}

func (s *Set) mayAttach(r podport.Request) error {
	refuse := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s", control.ErrRefused, fmt.Sprintf(format, a...))
	}
	if s.carrier == nil {
		return refuse("no pod can be attached directly: %s", s.why)
	}
	if s.pods[r.Key] == nil && len(s.pods) >= podport.MaxPods {
		return refuse("%d pods are attached to this node, which is as many as weftd takes", len(s.pods))
	}
	if slices.ContainsFunc(s.owed, func(o podport.Request) bool { return o.Key == r.Key }) {
		// else what the new one has reserved would be freed
		return refuse("the addresses of an earlier pod of that name, which is gone, are about to be freed: try " +
			"again in a moment; if that does not help, the log of weftd says what keeps them")
	}
	for _, a := range r.Addresses {
		if why := s.local.refuses(a); why != "" {
			return refuse("%s", why)
		}
		if p := s.holder(a, r.Key); p != nil && p.state != podport.Missing {
			return refuse("%s belongs to %s (%s): ask for another address (--address auto), or detach that pod "+
				"first (weft detach %s --name %s)", a, p.Key, p.label(), p.ID, p.Interface)
		}
	}
	return nil
}

// reserved refuses a pod whose addresses are not its own. What an earlier pod of the same key had reserved
// looks like the new one's, as long as it is not freed: an id is made of a namespace's number, which the
// kernel gives anew.
func (s *Set) reserved(r podport.Request) error {
	if r.Reservation == nil || s.o.Reserved == nil {
		return nil
	}
	if err := s.o.Reserved(r); err != nil {
		return fmt.Errorf("%w: its addresses are not reserved for it any more, as when an earlier pod of that "+
			"name has just ended: try again (%w)", control.ErrRefused, err)
	}
	return nil
}

// holder is the pod other than k that has the address, nil if there is none.
func (s *Set) holder(a netip.Addr, k podport.Key) *pod {
	for _, p := range s.pods {
		if p.Key != k && slices.Contains(p.Addresses, a) {
			return p
		}
	}
	return nil
}

func (p *pod) label() string {
	if p.Name != "" {
		return p.Name
	}
	return p.Netns
}

// Attach takes the TUN into use, in place of an earlier one of the same pod. Its descriptor is the first, and
// those of its settings follow. Attach takes them over, also beside an error, which is one of package
// control, or another one if the kernel did not do it.
func (s *Set) Attach(r podport.Request, fds []int) (podport.Pod, error) {
	s.serial.Lock()
	defer s.serial.Unlock()
	s.mu.Lock()
	err := s.mayAttach(r) // what was so before the descriptor came may not be so now
	if err == nil {
		err = s.reserved(r)
	}
	before := s.pods[r.Key]
	var stale []*pod
	for _, a := range r.Addresses {
		if p := s.holder(a, r.Key); p != nil && err == nil && !slices.Contains(stale, p) {
			stale = append(stale, p)
		}
	}
	c := s.carrier
	r.FollowsMTU = r.MTU == s.local.MTU
	s.mu.Unlock()
	p := newPod(r, fds)
	p.state, p.since = podport.Waiting, time.Now()
	if err != nil {
		p.close()
		return podport.Pod{}, err
	}
	for _, p := range stale {
		s.o.Logger.Info("a pod that was missing is forgotten: another one has its address", "pod", p.Key.String(),
			"name", p.label(), "of", r.Key.String())
		s.remove(p)
	}
	what := "pod attached"
	if before != nil {
		if before.state == podport.Attached {
			what = "pod attached again"
		}
		s.unport(c, before)
	}
	if err := s.port(c, p); err != nil {
		p.close()
		if before != nil && before.tun >= 0 {
			s.again(c, before) // if that fails too, it is tried each second
			s.changed(c)
		}
		return podport.Pod{}, fmt.Errorf("%s: %w", r.Key, err)
	}
	p.look()
	s.mu.Lock()
	s.pods[r.Key], s.dirty = p, true
	s.mu.Unlock()
	if before != nil {
		before.close() // its port is closed
	}
	err = s.keep(p, p.fds())
	s.changed(c)
	s.o.Logger.Info(what, "pod", r.Key.String(), "name", r.Name, "netns", r.Netns, "addresses",
		text(r.Addresses), "by", r.By)
	out := s.show(p, nil)
	if err != nil {
		out.Note = "a restart of weftd would cut the pod off, since its descriptor is not kept: " + err.Error()
	}
	return out, nil
}

// keep has the keeper keep fds of p, or with none what is known of p by now, and says why it does not.
func (s *Set) keep(p *pod, fds []int) error {
	if s.o.Keeper == nil {
		return nil
	}
	err := s.o.Keeper.Keep(p.Request, fds)
	if err != nil {
		s.o.Logger.Warn("pod is lost if weftd ends now: its descriptor is not kept, and it would have to be "+
			"attached again", "pod", p.Key.String(), "reason", err)
	}
	return err
}

// port gives p a port of c. serial is held.
func (s *Set) port(c Carrier, p *pod) error {
	dup, err := unix.FcntlInt(uintptr(p.tun), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("duplicate the descriptor: %w", err)
	}
	id, err := c.AttachPod(dup, p.Addresses, p.MTU)
	if err != nil {
		return err
	}
	s.mu.Lock()
	p.port, p.why, p.retry = id, "", time.Time{}
	p.is(podport.Attached)
	s.mu.Unlock()
	return nil
}

// is sets the state.
func (p *pod) is(state string) {
	if p.state != state {
		p.state, p.since = state, time.Now()
	}
}

// unport closes p's port, if it has one. serial is held.
func (s *Set) unport(c Carrier, p *pod) {
	s.mu.Lock()
	id := p.port
	p.port = 0
	if id != 0 {
		p.is(podport.Waiting)
		if c != nil {
			s.retire(c, id)
		}
	}
	s.mu.Unlock()
	if id != 0 && c != nil {
		if err := c.Detach(id); err != nil {
			s.o.Logger.Debug("a port was gone already", "pod", p.Key.String(), "reason", err)
		}
	}
}

// Detach forgets a pod, and lets its device go. Its addresses are whoever's who asks: they are not freed. The
// error wraps control.ErrNotFound if there is no such pod.
func (s *Set) Detach(k podport.Key) (podport.Pod, error) {
	s.serial.Lock()
	defer s.serial.Unlock()
	s.mu.Lock()
	p, c := s.pods[k], s.carrier
	s.mu.Unlock()
	if p == nil {
		return podport.Pod{}, fmt.Errorf("%s: %w: weft pods lists those that are attached directly", k,
			control.ErrNotFound)
	}
	var stats []tunnel.PodStats
	if c != nil {
		stats = c.Stats()
	}
	last := s.show(p, stats)
	if p.tun >= 0 { // the device goes when the last descriptor of it is closed, wherever it is
		_ = unix.IoctlSetInt(p.tun, unix.TUNSETPERSIST, 0) // it may be gone already
	}
	s.unport(c, p)
	s.remove(p)
	s.changed(c)
	s.o.Logger.Info("pod detached", "pod", k.String(), "name", p.Name, "addresses", text(p.Addresses))
	return last, nil
}

// remove forgets p, which has no port. serial is held.
func (s *Set) remove(p *pod) {
	s.mu.Lock()
	if s.pods[p.Key] == p {
		delete(s.pods, p.Key)
	}
	s.dirty = true
	s.mu.Unlock()
	if s.o.Keeper != nil {
		if err := s.o.Keeper.Forget(p.Key); err != nil {
			s.o.Logger.Warn("the keeper of pods' descriptors still has one that is not needed", "pod", p.Key.String(),
				"reason", err)
		}
	}
	p.close()
	s.nudge()
}

// close closes p's descriptors.
func (p *pod) close() {
	for _, fd := range p.own() {
		if *fd >= 0 {
			_ = unix.Close(*fd) // nothing was written that a close could lose
		}
		*fd = -1
	}
}

// changed tells the data plane which addresses are pods', and has the file written.
func (s *Set) changed(c Carrier) {
	if c != nil {
		c.Routed(s.Addresses())
	}
	s.nudge()
}

// Addresses are those of all pods that have a port, sorted.
func (s *Set) Addresses() (out []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pods {
		if p.port != 0 {
			out = append(out, p.Addresses...)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// nudge has Run look. It does not block.
func (s *Set) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
