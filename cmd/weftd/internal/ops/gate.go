package ops

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// maxScrapes is how many requests for /metrics are answered at a time. Each keeps a page in memory, which
	// is megabytes with thousands of peers.
	maxScrapes = 8
	// patience is how long a client may read a page while others wait for its place.
	patience = time.Second
	// pageTime is how long it may read if nobody waits.
	pageTime = 15 * time.Second
)

// gate lets maxScrapes requests to next at a time. A client that reads too slowly loses its place to a new
// one; the library's own limit would let it keep the place.
type gate struct {
	next http.Handler
	mu   sync.Mutex
	open []*reader // oldest first
}

type reader struct {
	since   time.Time
	control *http.ResponseController
}

// enter returns the place of a scrape, nil if there is none.
func (g *gate) enter(w http.ResponseWriter) *reader {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if len(g.open) >= maxScrapes {
		if now.Sub(g.open[0].since) < patience {
			return nil
		}
		_ = g.open[0].control.SetWriteDeadline(now) // its next write fails
		g.open = slices.Delete(g.open, 0, 1)
	}
	s := &reader{now, http.NewResponseController(w)}
	_ = s.control.SetWriteDeadline(now.Add(pageTime)) // an error is a test's writer
	g.open = append(g.open, s)
	return s
}

func (g *gate) leave(s *reader) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.open, s); i >= 0 {
		g.open = slices.Delete(g.open, i, i+1)
	}
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := g.enter(w)
	if s == nil {
		w.Header().Set("Retry-After", "1")
		text(w, http.StatusServiceUnavailable, "too many ask for the metrics at this moment")
		return
	}
	defer g.leave(s)
	g.next.ServeHTTP(w, r)
}
