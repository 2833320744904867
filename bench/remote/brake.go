package remote

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// These limit how many wrong tokens are examined, from one source and from all: so many at once, and
// from then on one in each interval. A few are allowed, since scripts have typing errors. 10 a second from
// all sources are 26 million in a month, too few to guess a token.
const (
	sourceGuesses  = 5
	sourceInterval = 2 * time.Second
	allGuesses     = 100
	allInterval    = 100 * time.Millisecond
	// maxSources bounds the table of sources. It is hardly ever reached: a source can be forgotten after 10
	// seconds, and in that time about a fifth as many guesses are examined from all sources together.
	maxSources = 1024
	// maxKnown is how many sources that had the token are remembered.
	maxKnown = 64
)

// budget is how many guesses are left, kept as the time at which none would be missing if one comes back in each interval.
type budget struct{ whole time.Time }

// left returns how long it takes until there is a guess to spend, 0 if there is one now.
func (b budget) left(now time.Time, most int, interval time.Duration) time.Duration {
	return max(0, b.whole.Add(-time.Duration(most-1)*interval).Sub(now)) // Sub saturates for the zero time
}

func (b *budget) spend(now time.Time, interval time.Duration) {
	if b.whole.Before(now) {
		b.whole = now
	}
	b.whole = b.whole.Add(interval)
}

// brake limits the guesses at a token. Its zero value is ready. Safe for concurrent use.
type brake struct {
	mu      sync.Mutex
	all     budget
	sources map[netip.Addr]budget
	known   []netip.Addr // sources that gave the right token, newest last
}

// try says whether a token from source is examined, and if not, after how long another would be. right
// says whether the token is the right one. A token that is not examined is refused even if it is right, or
// a source could go on guessing in spite of the brake.
func (b *brake) try(now time.Time, source netip.Addr, right bool) (examined bool, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.sources[source]
	wait = own.left(now, sourceGuesses, sourceInterval)
	// A source that gave the right token before is not kept out by guesses from many others.
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
