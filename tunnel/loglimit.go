package tunnel

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rate of log lines about events that the network can cause, per worker. A line costs as much as many
// packets, and an attacker may cause lines on purpose.
const (
	logEvery = time.Second
	logBurst = 10
)

// logLimiter limits the rate of log lines, and counts the suppressed ones. The zero value is full. It is safe
// for concurrent use.
type logLimiter struct {
	mu       sync.Mutex
	limit    *rate.Limiter
	withheld uint64 // since the last line
}

// allow reports whether a line may be written at now (Unix nanoseconds), and how many were suppressed since
// the last.
func (s *logLimiter) allow(now int64) (withheld uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit == nil {
		s.limit = rate.NewLimiter(rate.Every(logEvery), logBurst)
	}
	if !s.limit.AllowN(time.Unix(0, now), 1) {
		s.withheld++
		return 0, false
	}
	withheld, s.withheld = s.withheld, 0
	return withheld, true
}
