package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"weft/routing/event"
	"weft/routing/internal/kernel"
	"weft/routing/internal/wireguard"
)

// WireGuardKeyFile, in the state directory, has the node's private key, unless BackendConfig.KeyFile names another file. While it is
// replaced, the next one has ".new" at its end.
const WireGuardKeyFile = "wireguard.key"

// wireGuardEnd is a device of the kernel's or in user space.
type wireGuardEnd interface {
	// Configure makes the device have what c says. greet says which new peers a handshake is begun with at once.
	Configure(c wireguard.Config, greet func(wireguard.PublicKey) bool) (changed bool, err error)
	// Lost reports whether the device has ended by itself.
	Lost() bool
	Peers() ([]wireguard.PeerState, error)
	WrongKeys() uint64
	// Close lets go of the device. One of the kernel's, and one with a process of its own, go on with their sessions; End ends the latter.
	Close() error
	End() error
}

// Open implements Settings.
func (s *wireGuardSettings) Open(_ context.Context, c BackendConfig) (Backend, error) {
	b, err := s.open(c)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (s *wireGuardSettings) open(c BackendConfig) (*Encrypter, error) {
	if c.Kernel == nil {
		return nil, fmt.Errorf("%s backend: BackendConfig.Kernel is missing", s.name)
	}
	w := s.wireGuard()
	var err error
	if w.user, w.why, err = inUserSpace(c, w.o.Userspace, c.Kernel.ProbeWireGuard, kernel.ErrNoWireGuard, nil); err != nil {
		return nil, fmt.Errorf("%s backend: %w", s.name, err)
	}
	a := &wireGuardActor{k: c.Kernel, out: c.underlayKernel(), log: cmp.Or(c.Logger, slog.New(slog.DiscardHandler)), user: w.user, why: w.why, file: c.KeyFile, loose: w.encrypt == encryptBetweenLinks, ends: map[string]*wireGuardMade{}}
	a.asked = newAskedDevices(a.devices)
	if a.file == "" && c.StateDir != "" {
		a.file = filepath.Join(c.StateDir, WireGuardKeyFile)
	}
	if err := a.loadKey(); err != nil {
		return nil, fmt.Errorf("%s backend: %w", s.name, err)
	}
	w.public = a.public
	if w.why != "" {
		a.log.Warn("packets are encrypted in user space", "cause", w.why)
	}
	a.processes, a.names = c.WireGuardProcesses, w.names()
	b, err := newController(c, w, a)
	if err != nil {
		return nil, err
	}
	a.lost = func() { b.nudge(kernel.ChangedAll) }
	return &Encrypter{b, a}, nil
}

// Encrypter is the backend of type wireguard.
type Encrypter struct {
	*controller
	actor *wireGuardActor
}

// EncryptedPeer is what a device of WireGuard knows of a peer.
type EncryptedPeer struct {
	// Device is the one by which the peer's packets go.
	Device string
	// InVain is when bytes were last seen to leave for the peer while there was no session; zero if none were since the last one.
	InVain time.Time
	// Asked is when the device was asked for this.
	Asked time.Time
	wireguard.PeerState
}

// Silence says why a peer that packets are for is not heard, what is likely and what to do; "" if nothing is wrong or nothing is sent.
// now is the time, and wrongKeys what the peer's device has counted.
func (p EncryptedPeer) Silence(now time.Time, wrongKeys uint64) (likely, look string) {
	refused := p.Refused.Last.After(p.Handshake)
	idle := now.Sub(p.InVain) > wireGuardSilent
	if p.Handshake.IsZero() {
		idle = p.Tx == 0
	}
	switch {
	case hasSession(p.PeerState, now) || idle && !refused:
		return "", ""
	case refused && p.Refused.Responses > 0:
		return "its answers to our handshakes are refused: the PSK there is another one", "compare Backend.PSK of the network configuration that both nodes run on (weft status), and restart weftd on the one that is behind"
	case refused:
		return "its handshakes are refused: it has another key than its record says, or its clock was set back", "compare the two nodes' clocks (date); if they agree, restart weftd there, which writes its record with the key that it has"
	case wrongKeys > 0:
		return "our handshakes are not answered, and handshakes come that are for another key than this node's: peers have an older record of this node", "weft lease list on the peer must show this node's PublicKey (weft status here); is the peer's store behind?"
	case p.Handshake.IsZero():
		return "no handshake has been answered since weftd started", fmt.Sprintf("does a firewall between the nodes let UDP to %v through, both ways? Is weftd running there, with this node's key?", p.Endpoint)
	}
	return "no handshake has been answered for " + now.Sub(p.Handshake).Round(time.Second).String(), fmt.Sprintf("does the peer still run, and does UDP to %v pass?", p.Endpoint)
}

// wireGuardSilent is after how long without a handshake a peer that packets are for is not heard: sessions end after 180 s.
const wireGuardSilent = 180 * time.Second

// hasSession says that packets for a peer can leave without a handshake.
func hasSession(p wireguard.PeerState, now time.Time) bool {
	return !p.Handshake.IsZero() && now.Sub(p.Handshake) < wireGuardSilent
}

// outcry is what was last known of a peer without a session. A session ends when nothing passes, and with the next packet another begins:
// that there is none is a fault only if bytes, those of handshakes, leave all the same.
type outcry struct {
	handshake time.Time
	tx        uint64
	at        time.Time // when tx was seen to have grown; zero for never since the session ended
}

// outcries are by device and key.
type outcries map[string]map[wireguard.PublicKey]outcry

// note looks at a device's peers, and returns since when each is called in vain, in their order. It has to be asked more often than sessions
// end.
func (o outcries) note(device string, ps []wireguard.PeerState, now time.Time) []time.Time {
	before, after := o[device], make(map[wireguard.PublicKey]outcry, len(ps))
	out := make([]time.Time, len(ps))
	for i, p := range ps {
		if hasSession(p, now) {
			continue
		}
		x, known := before[p.Key]
		switch {
		case !known || !x.handshake.Equal(p.Handshake): // what was sent until now may have been in the session
			x = outcry{handshake: p.Handshake, tx: p.Tx}
		case x.tx != p.Tx:
			x.tx, x.at = p.Tx, now
		}
		after[p.Key], out[i] = x, x.at
	}
	o[device] = after
	return out
}

// WrongKeys is how many handshakes came that were for another key than this node's, as EncryptedPeers has asked.
func (e *Encrypter) WrongKeys() (n uint64) {
	all, _ := e.actor.asked.known() // who does not answer is told by EncryptedPeers
	for _, a := range all {
		n += a.wrongKeys
	}
	return n
}

// EncryptedPeers lists the peers of all devices. A device that does not answer within patience, as its process does not that hangs, has the
// peers that it told of last, if it ever did. The error says why one did not answer, and comes beside them; it may be of the time before.
func (e *Encrypter) EncryptedPeers(patience time.Duration) ([]EncryptedPeer, error) {
	all, err := e.actor.asked.within(patience)
	var out []EncryptedPeer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[name].peers...)
	}
	return out, err
}

// Recv is what the lease record's Recv has: RecvPlain, if packets may come in plain.
func (e *Encrypter) Recv() []string {
	if w, ok := e.kind.(wireGuard); ok && w.takesPlain(e.Status().Underlay, e.away()) {
		return []string{RecvPlain}
	}
	return nil
}

// PublicKey is this node's own.
func (e *Encrypter) PublicKey() wireguard.PublicKey { return e.actor.public() }

// RotateKey gives the node a new private key: in its file, on its devices, and in what Publish returns from then on. The sessions with all
// peers end, and begin anew when these know the new key: the caller has the record follow at once. An error says that the node still has the
// old key; what the devices did not take is tried again by Run.
func (e *Encrypter) RotateKey(ctx context.Context) (before, after wireguard.PublicKey, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return before, after, fmt.Errorf("%s backend: it has ended", typeWireGuard)
	}
	if before, after, err = e.actor.rotate(); err != nil {
		return before, after, err
	}
	e.want.stale = true // the record's own key is another
	if e.reconcile(ctx, kernel.ChangedAll) != nil {
		e.nudge(kernel.ChangedAll)
	}
	return before, after, nil
}

// wireGuardActor makes the devices of type wireguard and gives them their peers.
type wireGuardActor struct {
	k, out *kernel.Kernel // of the device, and of its sockets
	log    *slog.Logger
	user   bool
	why    string
	file   string // of the private key; "" keeps none
	loose  bool   // peers that are reached by other links may send by the devices
	// processes has the devices in user space; nil for this process itself. lost has the controller look when one ended.
	processes *WireGuardProcesses
	lost      func()
	names     map[string]bool // of the devices that processes of its own may have
	asked     *askedDevices

	own     atomic.Pointer[wireguard.PublicKey]
	running atomic.Pointer[[]WireGuardProcess] // nil before the first was looked for

	mu      sync.Mutex // guards what follows
	private wireguard.Secret
	ends    map[string]*wireGuardMade
}

// wireGuardMade is a device that there is.
type wireGuardMade struct {
	wireGuardEnd
	index int // of the link
	// keys has who had which subnet, so that a peer with a new key is known from a new peer; nil before there were peers.
	keys map[string]wireguard.PublicKey
}

var (
	_ actor    = (*wireGuardActor)(nil)
	_ preparer = (*wireGuardActor)(nil)
)

func (a *wireGuardActor) public() wireguard.PublicKey { return *a.own.Load() }

// loadKey reads the node's key, or makes it.
func (a *wireGuardActor) loadKey() error {
	made := true
	key := wireguard.NewPrivateKey()
	if a.file != "" {
		var err error
		if key, made, err = wireguard.LoadKey(a.file); err != nil {
			return err
		}
	}
	if err := a.setKey(key); err != nil {
		return err
	}
	if made && a.file != "" {
		a.log.Info("made a private key", "file", a.file, "public_key", a.public())
	}
	return nil
}

func (a *wireGuardActor) setKey(key wireguard.Secret) error {
	public, err := key.Public()
	if err != nil {
		return err
	}
	a.private = key
	a.own.Store(&public)
	return nil
}

// rotate is Encrypter.RotateKey but for the devices, which prepare tends.
func (a *wireGuardActor) rotate() (before, after wireguard.PublicKey, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before = a.public()
	key := wireguard.NewPrivateKey()
	if a.file != "" {
		if err := wireguard.StoreKey(a.file, key); err != nil {
			return before, before, err
		}
	}
	err = a.setKey(key)
	return before, a.public(), err
}

// prepare implements preparer.
func (a *wireGuardActor) prepare(d *desired, mtu int) (absent, notes []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var faults []error
	wanted := map[string]bool{}
	for i := range d.wireGuard {
		v := d.wireGuard[i]
		wanted[v.name] = true
		v.Private, v.MTU = a.private, mtu
		m, err := a.ensure(v.name, mtu)
		if err == nil {
			err = m.configure(v.Config)
			notes = append(notes, a.settings(v)...)
			if a.loose && v.has(false) { // a peer that we send to in plain may encrypt what it sends
				notes = append(notes, kernel.SettingNotes(v.name, a.k.Loosen(v.name))...)
			}
		}
		if m == nil {
			absent = append(absent, v.name)
		}
		faults = append(faults, err)
	}
	for name, m := range a.ends {
		if !wanted[name] { // its family has no address any more; the device goes with the last process, or by weft cleanup
			faults = append(faults, m.End())
			delete(a.ends, name)
		}
	}
	if a.processes != nil {
		a.processes.Tidy(a.names)
	}
	notes = append(notes, a.tellProcesses()...)
	_ = a.asked.ask(a.have()) // what has changed since counts; who asks is told of errors
	if a.why != "" {
		notes = append(notes, "packets are encrypted in user space: "+a.why)
	}
	return absent, notes, errors.Join(faults...)
}

// settings makes those of the device that the kernel's state does not have, and says what the lack of one means.
func (a *wireGuardActor) settings(v wireGuardDevice) (notes []string) {
	for _, err := range []error{a.k.SetIPv4(v.name), a.k.SetIPv6(v.name, v.has(true))} {
		notes = append(notes, kernel.SettingNotes(v.name, err)...)
	}
	return notes
}

// configure gives the device its key, port and peers. When it is new, as after a restart, each peer may have a session that this node has
// no more, and a peer whose key changed has none that counts: with these a handshake begins at once, and else with the first packet.
func (m *wireGuardMade) configure(c wireguard.Config) error {
	keys := make(map[string]wireguard.PublicKey, len(c.Peers))
	again := map[wireguard.PublicKey]bool{}
	for _, p := range c.Peers {
		for _, n := range p.AllowedIPs {
			keys[n.String()] = p.Key
			if before, known := m.keys[n.String()]; m.keys == nil || known && before != p.Key {
				again[p.Key] = true
			}
		}
	}
	_, err := m.Configure(c, func(k wireguard.PublicKey) bool { return again[k] })
	if err == nil && (m.keys != nil || len(keys) > 0) {
		m.keys = keys
	}
	return err
}

// greetAgain has a handshake begin at once with each peer that a device turns out not to have.
func (a *wireGuardActor) greetAgain() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.ends {
		m.keys = nil
	}
}

// ensure makes the device unless it is there.
func (a *wireGuardActor) ensure(name string, mtu int) (*wireGuardMade, error) {
	if m := a.ends[name]; m != nil {
		if d, err := a.k.Device(name); err == nil && d.Index == m.index && !m.Lost() {
			return m, nil
		} else if err != nil && !errors.Is(err, kernel.ErrNoLink) {
			return m, err
		}
		a.log.Warn("device is gone, making it again", "event", event.DeviceRepaired, "device", name)
		delete(a.ends, name)
		if err := m.Close(); err != nil {
			return nil, err
		}
	}
	end, err := a.make(name, mtu)
	if err != nil {
		return nil, err
	}
	d, err := a.k.Device(name)
	if errors.Is(err, kernel.ErrNoLink) { // its process has the TUN of a namespace that is gone
		return nil, errors.Join(err, end.End())
	}
	if err != nil {
		return nil, errors.Join(err, end.Close())
	}
	m := &wireGuardMade{wireGuardEnd: end, index: d.Index}
	a.ends[name] = m
	return m, nil
}

// make opens or makes a device. One of the other kind in its place is removed if it is ours or flannel's.
func (a *wireGuardActor) make(name string, mtu int) (wireGuardEnd, error) {
	kind, alias, err := a.k.Kind(name)
	if err != nil {
		return nil, err
	}
	right := "wireguard"
	if a.user {
		right = "tun"
	} else if a.processes != nil {
		if a.processes.Shared(name) {
			return nil, fmt.Errorf("device %s: the weftd that hands over encrypts in user space, and this one would by the kernel: that takes a restart, or \"Userspace\": \"always\"", name)
		}
		a.processes.End(name)
	}
	if kind != "" && kind != right {
		if !isWireGuardDevice(Device{Name: name, Kind: kind}) || alias != kernel.Alias && alias != "" {
			return nil, fmt.Errorf("link %s is another program's, of type %s: ip link del %s if nothing uses it", name, kind, name)
		}
		if err := a.k.DelLink(name); err != nil {
			return nil, err
		}
		a.log.Info("removed a device of another kind", "device", name, "kind", kind)
	}
	if !a.user {
		return openKernelWireGuard(a.k, name, kind == "")
	}
	u, err := a.openUser(name, mtu)
	if errors.Is(err, unix.EBUSY) {
		err = fmt.Errorf("%w: a running process has it: stop flanneld or the other weftd", err)
	}
	if err != nil {
		return nil, err
	}
	return u, nil
}

// act implements actor: all is done in prepare.
func (*wireGuardActor) act(context.Context, situation) outcome { return outcome{} }

// stop implements actor.
func (*wireGuardActor) stop(context.Context) error { return nil }

// close implements preparer. The devices stay, with addresses and routes: the kernel's goes on, and so does one with a process of its own.
func (a *wireGuardActor) close() error {
	a.mu.Lock()
	var faults []error
	for _, m := range a.ends {
		faults = append(faults, m.Close())
	}
	clear(a.ends)
	a.mu.Unlock()
	a.asked.close()
	return errors.Join(faults...)
}

// devices are those that there are.
func (a *wireGuardActor) devices() map[string]wireGuardEnd {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.have()
}

// have is devices. mu is held.
func (a *wireGuardActor) have() map[string]wireGuardEnd {
	all := make(map[string]wireGuardEnd, len(a.ends))
	for name, m := range a.ends {
		all[name] = m.wireGuardEnd
	}
	return all
}
