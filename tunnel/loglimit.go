package tunnel

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// How many lines a worker writes to the log about what came by the network: a line costs as much as many
// packets, and whoever sends may want it written.
const (
	sayEvery = time.Second
	sayBurst = 10
)

// saying bounds the rate of log lines, and counts those which it withheld. The zero value is full. It is safe
// for concurrent use.
type saying struct {
	mu       sync.Mutex
	limit    *rate.Limiter
	withheld uint64 // since the last line
}

// may reports whether a line may be written at now (Unix nanoseconds), and how many were not since the one
// before.
func (s *saying) may(now int64) (withheld uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit == nil {
		s.limit = rate.NewLimiter(rate.Every(sayEvery), sayBurst)
	}
	if !s.limit.AllowN(time.Unix(0, now), 1) {
		s.withheld++
		return 0, false
	}
	withheld, s.withheld = s.withheld, 0
	return withheld, true
}
