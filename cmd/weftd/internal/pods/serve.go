package pods

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/internal/podport"
	"weft/tunnel"
)

// Serve gives all pods ports of c, in place of those of an earlier data plane, which has ended. A nil c takes
// them their ports, and why says why there is no data plane.
func (s *Set) Serve(c Carrier, why string) {
	s.serial.Lock()
	defer s.serial.Unlock()
	s.lostMu.Lock()
	// of the earlier data plane, whose numbers the next one gives anew; a device that is gone is found below
	s.lost = nil
	s.lostMu.Unlock()
	s.mu.Lock()
	s.carrier, s.why, s.former = c, why, control.PodCounts{}
	var all []*pod
	for _, p := range s.pods {
		p.port = 0 // the data plane that it was of is gone, and its ports with it
		if p.tun >= 0 {
			p.is(podport.Waiting)
			all = append(all, p)
		}
	}
	s.mu.Unlock()
	if c == nil {
		return
	}
	slices.SortFunc(all, func(a, b *pod) int { return a.since.Compare(b.since) })
	for _, p := range all {
		s.again(c, p)
	}
	s.changed(c)
}

// retryAfter is how long a pod waits whose port could not be made, or died although its device is there.
const retryAfter = time.Second

// again gives p a port, or notes why not. serial is held.
func (s *Set) again(c Carrier, p *pod) {
	err := s.port(c, p)
	if err == nil {
		return
	}
	if gone(p.tun) {
		s.end(c, p)
		return
	}
	s.mu.Lock()
	said := p.why
	p.why, p.retry = err.Error(), time.Now().Add(retryAfter)
	s.mu.Unlock()
	if said != err.Error() {
		s.o.Logger.Warn("pod has no port; it is tried again", "pod", p.Key.String(), "name", p.label(),
			"reason", err)
	}
}

// Lost says that a port died by itself. The data plane's workers call it: it does not block. Ports of others
// than pods are ignored.
func (s *Set) Lost(id tunnel.PortID) {
	s.lostMu.Lock()
	s.lost = append(s.lost, id)
	s.lostMu.Unlock()
	s.nudge()
}

// gone reports whether the device behind a TUN's descriptor is no more.
func gone(tun int) bool {
	req, err := unix.NewIfreq("")
	if err != nil {
		return false
	}
	return errors.Is(unix.IoctlIfreq(tun, unix.TUNGETIFF, req), unix.EBADFD)
}

// settle is how long the file waits for more changes, and patience how often Run looks without being asked
// to.
const (
	settle   = 100 * time.Millisecond
	patience = 30 * time.Second
)

// Run forgets pods whose devices are gone, frees their addresses, tries again what failed and writes the
// file, until ctx ends.
func (s *Set) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	watch := time.NewTimer(0)
	defer watch.Stop()
	defer s.save()
	freeing := make(chan struct{})
	go func() { // ends with ctx
		defer close(freeing)
		s.freeAll(ctx)
	}()
	defer func() { <-freeing }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-watch.C:
			watch.Reset(s.shorten(time.Now()))
			continue
		case <-s.wake:
			watch.Reset(0) // there may be another pod
		case <-timer.C:
			s.forget()
		}
		s.reap()
		s.follow()
		next := s.retries(time.Now())
		timer.Reset(next)
		if !s.isDirty() {
			continue
		}
		select { // several changes are written once
		case <-ctx.Done():
			return nil
		case <-time.After(settle):
		}
		s.save()
	}
}

func (s *Set) isDirty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dirty
}

// reap deals with ports that died.
func (s *Set) reap() {
	s.lostMu.Lock()
	lost := s.lost
	s.lost = nil
	s.lostMu.Unlock()
	if len(lost) == 0 {
		return
	}
	s.serial.Lock() // an attach whose port died at once has noted the port's number by then
	defer s.serial.Unlock()
	s.mu.Lock()
	c := s.carrier
	var dead []*pod
	for _, p := range s.pods {
		if p.port != 0 && slices.Contains(lost, p.port) {
			dead = append(dead, p)
		}
	}
	s.mu.Unlock()
	for _, p := range dead {
		s.unport(c, p)
		if gone(p.tun) {
			s.end(c, p)
			continue
		}
		s.mu.Lock()
		p.why, p.retry = "its port died although its interface is there", time.Now().Add(retryAfter)
		s.mu.Unlock()
	}
	if len(dead) > 0 {
		s.changed(c)
	}
}

// forget looks after pods without a port, whose end nobody reads: those that are missing, and all while there
// is no data plane.
func (s *Set) forget() {
	s.serial.Lock()
	defer s.serial.Unlock()
	s.mu.Lock()
	c := s.carrier
	var idle []*pod
	for _, p := range s.pods {
		if p.port == 0 {
			idle = append(idle, p)
		}
	}
	s.mu.Unlock()
	for _, p := range idle {
		if p.tun >= 0 && gone(p.tun) || p.tun < 0 && p.ended() {
			s.end(c, p)
		}
	}
}

// end forgets a pod whose device is gone, and frees its addresses. serial is held.
func (s *Set) end(c Carrier, p *pod) {
	s.unport(c, p)
	s.remove(p)
	s.o.Logger.Info("pod gone: its interface is no more, as when its namespace ends", "pod", p.Key.String(),
		"name", p.label(), "addresses", text(p.Addresses))
	s.free(p)
}

// retries tries again what is due, and says how long to wait for the next.
func (s *Set) retries(now time.Time) time.Duration {
	s.serial.Lock()
	defer s.serial.Unlock()
	s.mu.Lock()
	c, wait := s.carrier, patience
	var due []*pod
	for _, p := range s.pods {
		switch {
		case p.retry.IsZero() || p.tun < 0 || p.port != 0:
		case now.Before(p.retry):
			wait = min(wait, p.retry.Sub(now))
		default:
			due = append(due, p)
		}
	}
	s.mu.Unlock()
	if c == nil {
		return wait
	}
	for _, p := range due {
		s.again(c, p)
		wait = min(wait, retryAfter)
	}
	if len(due) > 0 {
		s.changed(c)
	}
	return wait
}

// Close closes the descriptors. The pods stay on disk, and with the keeper.
func (s *Set) Close() {
	s.serial.Lock()
	defer s.serial.Unlock()
	defer s.save() // what a request that was under way has changed since Run ended
	s.mu.Lock()
	defer s.mu.Unlock()
	s.carrier, s.why = nil, "weftd ends"
	for _, p := range s.pods {
		if p.tun >= 0 {
			p.close()
			p.port = 0
		}
	}
}

func text(addrs []netip.Addr) string {
	var l []string
	for _, a := range addrs {
		l = append(l, a.String())
	}
	return strings.Join(l, ", ")
}
