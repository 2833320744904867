package remote

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// How many wrong tokens are examined: at once, and then one in each interval, of one source and of
// all. A wrong one in a script or two is no attack; 10 a second are 26 million in a month.
const (
	sourceGuesses  = 5
	sourceInterval = 2 * time.Second
	allGuesses     = 100
	allInterval    = 100 * time.Millisecond
	// maxSources bounds the table of sources. What is examined of all is a fifth of that within the
	// 10 seconds after which a source can be forgotten, so that it is hardly reached.
	maxSources = 1024
	// maxKnown is how many sources that had the token are remembered.
	maxKnown = 64
)

// budget is of guesses: when it would be whole again, at one an interval.
type budget struct{ whole time.Time }

// left is how long it takes until there is a guess, 0 if there is one.
func (b budget) left(now time.Time, most int, interval time.Duration) time.Duration {
	return max(0, b.whole.Add(-time.Duration(most-1)*interval).Sub(now)) // Sub saturates for the zero time
}

func (b *budget) spend(now time.Time, interval time.Duration) {
	if b.whole.Before(now) {
		b.whole = now
	}
	b.whole = b.whole.Add(interval)
}

// brake bounds the guesses at a token. Its zero value is ready. Safe for concurrent use.
type brake struct {
	mu      sync.Mutex
	all     budget
	sources map[netip.Addr]budget
	known   []netip.Addr // sources that had the token, newest last
}

// try says whether a token from source is examined; if not, after how long another would be. right
// is whether it is the one, which only counts if it is examined: else guesses would go on.
func (b *brake) try(now time.Time, source netip.Addr, right bool) (examined bool, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.sources[source]
	wait = own.left(now, sourceGuesses, sourceInterval)
	// Guesses from many places do not keep those out who had the token before.
	if known := slices.Contains(b.known, source); !known {
		wait = max(wait, b.all.left(now, allGuesses, allInterval))
	}
	if wait > 0 {
		return false, wait
	}
	if right {
		if i := slices.Index(b.known, source); i >= 0 {
			b.known = slices.Delete(b.known, i, i+1)
		}
		b.known = append(b.known[max(0, len(b.known)+1-maxKnown):], source)
		return true, 0
	}
	if _, in := b.sources[source]; !in && len(b.sources) >= maxSources {
		maps.DeleteFunc(b.sources, func(_ netip.Addr, s budget) bool { return !s.whole.After(now) })
		if len(b.sources) >= maxSources {
			return false, sourceInterval
		}
	}
	if b.sources == nil {
		b.sources = map[netip.Addr]budget{}
	}
	own.spend(now, sourceInterval)
	b.sources[source] = own
	b.all.spend(now, allInterval)
	return true, 0
}
