package routing

import (
	"fmt"
	"log/slog"
	"time"

	"weft/routing/internal/kernel"
)

// underState is the underlay as it was last seen.
type underState struct {
	now       Underlay
	lost      string
	lostSince time.Time
}

// refresh looks whether the underlay still is as it was; first is what was chosen at the start. One that
// has been lost for longer than grace may be replaced by another address or link. The error says what is
// lost, or that the kernel does not tell.
func (s *underState) refresh(k *kernel.Kernel, first Underlay, o UnderlayOptions, grace time.Duration, log *slog.Logger) error {
	l, err := underlayListing(k, first.Link)
	if err != nil {
		return fmt.Errorf("underlay: %w", err)
	}
	was := *s
	replace := was.lost != "" && time.Since(was.lostSince) >= grace
	s.now, s.lost = was.now.refreshed(first, l, o, replace)
	if s.lost != was.lost {
		s.lostSince = time.Now()
		if s.lost != "" {
			log.Warn("underlay lost, waiting for it", "reason", s.lost)
		} else {
			log.Info("underlay is back", "link", s.now.Link)
		}
	}
	if s.now != was.now {
		log.Info("underlay changed", "link", s.now.Link, "mtu", s.now.MTU, "ipv4", s.now.Addr4, "ipv6", s.now.Addr6)
	}
	if s.lost != "" {
		return fmt.Errorf("underlay: %s", s.lost)
	}
	return nil
}
