package ops

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// These bound how many requests for /metrics are served at a time. They are the ones that take long: a client that
// reads slowly occupies one until its time is over.
const (
	maxScrapes          = 24
	maxScrapesPerSource = 12
)

// scrapes serves /metrics. It is safe for concurrent use.
type scrapes struct {
	reg  *Registry
	mu   sync.Mutex // protects what follows
	all  int
	from map[netip.Addr]int
}

func newScrapes(reg *Registry) *scrapes { return &scrapes{reg: reg, from: map[netip.Addr]int{}} }

// enter counts a scrape in, if there is room for it.
func (s *scrapes) enter(source netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxScrapes || s.from[source] >= maxScrapesPerSource {
		return false
	}
	s.all++
	s.from[source]++
	return true
}

func (s *scrapes) leave(source netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.from[source]--; s.from[source] == 0 {
		delete(s.from, source)
	}
}

// ServeHTTP implements http.Handler.
func (s *scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var source netip.Addr
	if c := connOf(r.Context()); c != nil {
		source = c.source
	}
	if !s.enter(source) {
		w.Header().Set("Retry-After", "1")
		text(w, http.StatusServiceUnavailable, "too many ask for the metrics at this moment")
		return
	}
	defer s.leave(source)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(pageTime)) // one that cannot is a test's
	g, err := s.reg.pages.get(r.Context())
	if err != nil {
		text(w, http.StatusInternalServerError, err.Error()) // to nobody, if the client has left
		return
	}
	defer s.reg.pages.put(g)
	body := g.text
	h := w.Header()
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		body = g.gzip()
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // an error is a client that has left
}

// acceptsGzip reads Accept-Encoding as Prometheus and browsers write it: gzip;q=0 refuses.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, q, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" {
			q = strings.TrimSpace(q)
			return q == "" || strings.Trim(strings.TrimPrefix(q, "q="), "0.") != ""
		}
	}
	return false
}
