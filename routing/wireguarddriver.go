package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"weft/routing/event"
	"weft/routing/internal/kernel"
	"weft/routing/internal/wireguard"
)

// WireGuardKeyFile, in the state directory, has the node's private key, unless BackendConfig.KeyFile names
// another file.
const WireGuardKeyFile = "wireguard.key"

// open implements opener.
func (w *wireGuard) open(_ context.Context, c BackendConfig) (settings, driver, error) {
	n := *w
	if err := n.decide(c, kernel.KindWireGuard, false); err != nil {
		return nil, nil, err
	}
	a := &wireGuardDriver{
		k: c.Kernel, out: c.underlayKernel(), log: c.Logger,
		user: n.user, why: n.why, file: cmp.Or(c.KeyFile, string(c.stateFile(WireGuardKeyFile))),
		loose: n.encrypt == encryptBetweenLinks, made: map[string]madeWireGuard{},
	}
	if err := a.loadKey(); err != nil {
		return nil, nil, err
	}
	n.public = a.public
	return &n, a, nil
}

// wireGuardDriver makes the devices of type wireguard and gives them their peers.
type wireGuardDriver struct {
	idle
	k, out *kernel.Kernel // of the device, and of its sockets
	log    *slog.Logger
	user   bool
	why    string
	file   string // of the private key; "" keeps none
	loose  bool   // peers that are reached by other links may send by the devices

	own     atomic.Pointer[wireguard.PublicKey]
	private wireguard.Secret // guarded by the node's lock

	mu   sync.Mutex // guards made, which only the node changes, with its own lock held too
	made map[string]madeWireGuard
}

// madeWireGuard is a device that there is.
type madeWireGuard struct {
	*wireguard.Device
	index int // of the link
}

func (a *wireGuardDriver) public() wireguard.PublicKey { return *a.own.Load() }

// loadKey reads the node's key, or makes it.
func (a *wireGuardDriver) loadKey() error {
	made := true
	key := wireguard.NewPrivateKey()
	if a.file != "" {
		var err error
		if key, made, err = wireguard.LoadKey(a.file); err != nil {
			return err
		}
	}
	a.setKey(key)
	if made && a.file != "" {
		a.log.Info("made a private key", "file", a.file, "public_key", a.public())
	}
	return nil
}

func (a *wireGuardDriver) setKey(key wireguard.Secret) {
	public := key.Public()
	a.private = key
	a.own.Store(&public)
}

// peers implements driver.
func (a *wireGuardDriver) peers() (all []EncryptedPeer, err error) {
	devices := a.devices()
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		ps, fault := devices[name].Peers()
		err = errors.Join(err, fault)
		for _, p := range ps {
			all = append(all, EncryptedPeer{name, p})
		}
	}
	return all, err
}

// rotate implements driver.
func (a *wireGuardDriver) rotate() (before, after wireguard.PublicKey, err error) {
	before = a.public()
	key := wireguard.NewPrivateKey()
	if a.file != "" {
		if err := wireguard.StoreKey(a.file, key); err != nil {
			return before, before, err
		}
	}
	a.setKey(key)
	return before, a.public(), nil
}

// sync implements driver.
func (a *wireGuardDriver) sync(_ context.Context, s situation, d *desired) (out outcome) {
	var faults []error
	wanted := map[string]bool{}
	devices, _ := d.driven.([]wireGuardDevice) // none without a subnet
	for _, v := range devices {
		wanted[v.name] = true
		v.Private, v.MTU = a.private, s.mtu
		m, err := a.ensure(v.name, s.mtu)
		if err == nil {
			err = m.Configure(v.Config)
			out.notes = append(out.notes, a.settings(v)...)
		}
		if m == nil {
			out.absent = append(out.absent, v.name)
		}
		faults = append(faults, err)
	}
	for name, m := range a.devices() {
		if !wanted[name] { // its family has no address any more; weft cleanup removes the link
			faults = append(faults, a.drop(name, m))
		}
	}
	for _, m := range a.devices() {
		_, _ = m.Peers() // looks for peers that are called in vain; whoever asks for them is told of errors
	}
	if a.why != "" {
		out.notes = append(out.notes, "packets are encrypted in user space: "+a.why)
	}
	out.devices = errors.Join(faults...)
	return out
}

// settings makes those of the device that the kernel's state does not have, and says what the lack of one
// means.
func (a *wireGuardDriver) settings(v wireGuardDevice) (notes []string) {
	faults := []error{a.k.SetIPv4(v.name), a.k.SetIPv6(v.name, v.has(true))}
	if a.loose && v.has(false) { // a peer that we send to in plain may encrypt what it sends
		faults = append(faults, a.k.Loosen(v.name))
	}
	for _, err := range faults {
		notes = append(notes, kernel.SettingNotes(v.name, err)...)
	}
	return notes
}

// ensure makes the device unless it is there.
func (a *wireGuardDriver) ensure(name string, mtu int) (*wireguard.Device, error) {
	if m, ok := a.devices()[name]; ok {
		d, err := a.k.Device(name)
		switch {
		case err == nil && d.Index == m.index && !m.Lost():
			return m.Device, nil
		case err != nil && !errors.Is(err, kernel.ErrNoLink):
			return m.Device, err
		}
		a.log.Warn("device is gone, making it again", "event", event.DeviceRepaired, "device", name)
		if err := a.drop(name, m); err != nil {
			return nil, err
		}
	}
	made, err := a.make(name, mtu)
	if err != nil {
		return nil, err
	}
	d, err := a.k.Device(name)
	if err != nil {
		return nil, errors.Join(err, made.Close())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.made[name] = madeWireGuard{made, d.Index}
	return made, nil
}

// make opens or makes a device. One of the other kind in its place is removed if it is ours or flannel's.
func (a *wireGuardDriver) make(name string, mtu int) (*wireguard.Device, error) {
	there, err := a.k.Device(name)
	if err != nil && !errors.Is(err, kernel.ErrNoLink) {
		return nil, err
	}
	right := kernel.KindWireGuard
	if a.user {
		right = kernel.KindTUN
	}
	if there.Kind != "" && there.Kind != right {
		if !isWireGuardDevice(there) || there.Alias != kernel.Alias && there.Alias != "" {
			return nil, fmt.Errorf("link %s is another program's, of type %s: ip link del %s if nothing uses it",
				name, there.Kind, name)
		}
		if err := a.k.DelLink(name); err != nil {
			return nil, err
		}
		a.log.Info("removed a device of another kind", "device", name, "kind", there.Kind)
		there.Kind = ""
	}
	if a.user {
		d, err := wireguard.OpenUser(name, mtu, a.k.Do, a.out.Do)
		if errors.Is(err, unix.EBUSY) {
			err = fmt.Errorf("%w: a running process has it: stop flanneld or the other weftd", err)
		}
		return d, err
	}
	if there.Kind != "" { // with the sessions that it has
		return wireguard.OpenKernel(name, a.k.Do)
	}
	fresh := kernel.Device{Name: name, Kind: kernel.KindWireGuard}
	if err := a.k.AddDevice(fresh); err != nil {
		return nil, err
	}
	// only when it is up does a handshake begin when it gets its peers
	_, err = a.k.SetDevice(fresh, []string{"up"})
	d, fault := wireguard.OpenKernel(name, a.k.Do)
	err = errors.Join(err, fault)
	if err != nil {
		err = errors.Join(err, a.k.DelLink(name))
	}
	return d, err
}

// close implements driver. The links stay, with addresses and routes, and the kernel's devices with their
// sessions.
func (a *wireGuardDriver) close(context.Context, bool) error {
	var faults []error
	for name, m := range a.devices() {
		faults = append(faults, a.drop(name, m))
	}
	return errors.Join(faults...)
}

func (a *wireGuardDriver) drop(name string, m madeWireGuard) error {
	a.mu.Lock()
	delete(a.made, name)
	a.mu.Unlock()
	return m.Close()
}

// devices are those that there are.
func (a *wireGuardDriver) devices() map[string]madeWireGuard {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.made)
}
