package daemon

import (
	"log/slog"

	"weft/cmd/weftd/internal/choice"
	"weft/lease"
)

// lastGood has the last configuration that worked, and the set that was saved with it. One goroutine
// at a time uses it, which opens or serves a network.
type lastGood struct {
	cache  *lease.Cache
	source source
	log    *slog.Logger
	// saved and cached are what the last run saved; cached is nil if there is none, or it has been forgotten.
	saved  Network
	cached *lease.Cached
}

// openLastGood reads what the last run saved. If there is nothing, weftd asks the source first. No fault of
// the cache keeps the daemon from starting.
func openLastGood(dir string, src source, log *slog.Logger) *lastGood {
	l := &lastGood{cache: lease.NewCache(dir, src.info().cache), source: src, log: log}
	first := "the " + src.info().name + " has to answer first"
	c, err := l.cache.Load()
	if err != nil {
		log.Info("no last state: "+first, "reason", err)
		return l
	}
	if l.saved, err = src.recall(c); err != nil {
		log.Warn("the last state cannot be used: "+first, "reason", err)
		return l
	}
	l.cached = &c
	return l
}

// forget lets what the last run saved go: in a large network it is large, and soon outdated. Later it is read
// again.
func (l *lastGood) forget() { l.cached = nil }

// read returns the last good configuration with its set, which is nil if there is none.
func (l *lastGood) read() (Network, *lease.Cached) {
	if l.cached != nil {
		return l.saved, l.cached
	}
	c, err := l.cache.Load()
	if err != nil {
		return Network{}, nil
	}
	f, err := l.source.recall(c)
	if err != nil {
		l.log.Debug("there is no last good configuration", "reason", err)
		return Network{}, nil
	}
	return f, &c
}

// network is the last good one, nil if there is none.
func (l *lastGood) network() *choice.Network {
	f, cached := l.read()
	if cached == nil {
		return nil
	}
	n := f.choice()
	n.LastGood = true
	return &n
}
