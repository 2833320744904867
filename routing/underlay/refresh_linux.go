package underlay

import (
	"fmt"
	"log/slog"
	"time"

	"weft/routing/event"
	"weft/routing/internal/kernel"
)

// State is the underlay as Refresh last saw it. One goroutine at a time may use it.
type State struct {
	// Now is the link with the addresses in use; before the first Refresh it is what Choose chose.
	Now Link
	// Lost says what is missing of it; empty if nothing is.
	Lost string

	lostSince time.Time
}

// Refresh checks whether the underlay still is as it was; first is what was chosen at the start. An address
// that has been lost for longer than grace may be replaced by another one of the same link. The error says
// what is lost, or why the kernel's listing failed.
func (s *State) Refresh(k *kernel.Kernel, first Link, o Options, grace time.Duration,
	log *slog.Logger) error {
	l, err := listingOf(k, first.Name)
	if err != nil {
		return fmt.Errorf("underlay: %w", err)
	}
	was := *s
	replace := was.Lost != "" && time.Since(was.lostSince) >= grace
	s.Now, s.Lost = was.Now.refreshed(first, l, o, replace)
	if s.Lost != was.Lost {
		s.lostSince = time.Now()
		if s.Lost != "" {
			log.Warn("underlay lost, waiting for it", "event", event.UnderlayLost, "reason", s.Lost)
		} else {
			log.Info("underlay is back", "event", event.UnderlayChosen, "link", s.Now.Name)
		}
	}
	if s.Now != was.Now {
		log.Info("underlay changed", "event", event.UnderlayChosen, "link", s.Now.Name, "mtu", s.Now.MTU, "ipv4",
			s.Now.Addr4, "ipv6", s.Now.Addr6)
	}
	if s.Lost != "" {
		return fmt.Errorf("underlay: %s", s.Lost)
	}
	return nil
}
