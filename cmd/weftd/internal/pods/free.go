package pods

import (
	"context"
	"slices"
	"time"

	"weft/cmd/internal/podport"
)

// free has what is reserved for p freed, which nobody waits for: another process may have the store of the
// reservations locked.
func (s *Set) free(p *pod) {
	if p.Reservation == nil || s.o.Free == nil {
		return
	}
	s.mu.Lock()
	s.owed, s.dirty = append(s.owed, p.Request), true
	s.mu.Unlock()
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

// freeAll frees the addresses of pods that are gone, and tries those again that could not be freed, until ctx
// ends. The rest is on disk, for the next weftd.
func (s *Set) freeAll(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	said := map[podport.Key]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.freed:
		case <-timer.C:
		}
		if timer.Stop(); s.freeOwed(ctx, said) > 0 {
			timer.Reset(patience)
		}
	}
}

// freeOwed tries each once, and says how many are left.
func (s *Set) freeOwed(ctx context.Context, said map[podport.Key]bool) (left int) {
	s.mu.Lock()
	owed := slices.Clone(s.owed)
	s.mu.Unlock()
	for i := 0; i < len(owed) && ctx.Err() == nil; i++ {
		s.freeOne(owed[i], said)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.owed)
}

// freeOne frees the addresses of one pod; said has those whose fault is in the log.
func (s *Set) freeOne(r podport.Request, said map[podport.Key]bool) {
	err := s.o.Free(r)
	if err != nil && !said[r.Key] {
		said[r.Key] = true
		s.o.Logger.Warn("the addresses of a pod that is gone are still reserved, and no pod gets them; it is "+
			"tried again, also by the next weftd. The files that are named after them in the directory are the "+
			"reservations", "pod", r.Key.String(), "addresses", text(r.Addresses), "directory", r.Reservation.Dir+"/"+
			r.Reservation.Network, "reason", err)
	}
	if err != nil {
		return
	}
	if said[r.Key] {
		s.o.Logger.Info("the addresses of a pod that is gone are free now", "pod", r.Key.String(), "addresses",
			text(r.Addresses))
		delete(said, r.Key)
	}
	s.mu.Lock()
	s.owed, s.dirty = slices.DeleteFunc(s.owed, func(o podport.Request) bool { return o.Key == r.Key }), true
	s.mu.Unlock()
	s.nudge()
}
