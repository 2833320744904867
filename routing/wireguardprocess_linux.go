package routing

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"weft/routing/internal/kernel"
	"weft/routing/internal/wireguard"
)

// WireGuardProcesses are devices of type wireguard in user space, each a process of its own.
type WireGuardProcesses = wireguard.Processes

// WireGuardProcessOptions say how they are started and kept.
type WireGuardProcessOptions = wireguard.ProcessOptions

// WireGuardLine is what is kept of one.
type WireGuardLine = wireguard.Line

// WireGuardProcess is one of them.
type WireGuardProcess struct {
	Device string
	PID    int
	// Version is that of its program, which it has kept since it was started.
	Version string
}

// NewWireGuardProcesses takes over what an earlier weftd kept. The caller closes it when no backend has it any more.
func NewWireGuardProcesses(o WireGuardProcessOptions) *WireGuardProcesses {
	return wireguard.NewProcesses(o)
}

// WireGuardServed says what a process is and does.
type WireGuardServed = wireguard.Served

// ServeWireGuard is such a process. line and tun are descriptors that WireGuardProcessOptions.Start was given; they are its own from now on. It
// returns nil when nobody keeps the process any more, when it is told to end, or when its device is gone.
func ServeWireGuard(ctx context.Context, s WireGuardServed, line, tun int) error {
	return wireguard.Serve(ctx, s, line, tun)
}

// openUser opens a device in user space: in a process of its own, which may be there already, or else in this one.
func (a *wireGuardActor) openUser(name string, mtu int) (wireGuardEnd, error) {
	if a.processes != nil {
		r, err := a.processes.Open(name, a.k.Do, a.out.Do, a.lost)
		if err != nil {
			return nil, err // and no *Remote in the interface
		}
		return r, nil
	}
	u, err := wireguard.OpenUser(name, mtu, a.k.Do, a.out.Do, a.log)
	if err != nil {
		return nil, err // nor *User
	}
	return u, nil
}

// tellProcesses publishes which processes have the devices, and notes which are of another version than this program. mu is held.
func (a *wireGuardActor) tellProcesses() (notes []string) {
	var all []WireGuardProcess
	for name, m := range a.ends {
		if r, ok := m.wireGuardEnd.(*wireguard.Remote); ok {
			pid, version, lacks := r.Process()
			all = append(all, WireGuardProcess{name, pid, version})
			if lacks != "" {
				notes = append(notes, fmt.Sprintf("the process that encrypts for %s (pid %d) keeps rights that it has no need of: %s", name, pid, lacks))
			}
			if own := a.processes.Version(); version != own {
				notes = append(notes, fmt.Sprintf("the process that encrypts for %s (pid %d) is of weft %s, and this weftd is %s: weft upgrade --encryption replaces it, and sessions with all peers begin anew", name, pid, version, own))
			}
		}
	}
	slices.SortFunc(all, func(x, y WireGuardProcess) int { return cmp.Compare(x.Device, y.Device) })
	slices.Sort(notes)
	a.running.Store(&all)
	return notes
}

// processesNow takes no lock.
func (a *wireGuardActor) processesNow() []WireGuardProcess {
	if all := a.running.Load(); all != nil {
		return *all
	}
	return nil
}

// ReplaceProcesses ends the processes that encrypt, and starts others of this program. Sessions with all peers begin anew. What an error
// names is tried again by Run.
func (e *Encrypter) ReplaceProcesses(ctx context.Context) (before, after []WireGuardProcess, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return nil, nil, fmt.Errorf("%s backend: it has ended", e.Type())
	}
	before = e.actor.processesNow()
	e.actor.endAll()
	e.want.stale = true
	if err := e.reconcile(ctx, kernel.ChangedAll); err != nil {
		e.nudge(kernel.ChangedAll)
		return before, nil, err
	}
	return before, e.actor.processesNow(), nil
}

// endAll ends the processes; prepare starts others.
func (a *wireGuardActor) endAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, m := range a.ends {
		if r, ok := m.wireGuardEnd.(*wireguard.Remote); ok {
			_ = r.End() // it has no error of its own
			delete(a.ends, name)
		}
	}
	if a.processes != nil {
		a.processes.Tidy(nil) // also one that nothing could be said to
	}
}
