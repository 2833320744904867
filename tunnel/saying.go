package tunnel

import "time"

// How many lines a worker writes to the log about what came by the network: a line costs as much as many
// packets, and whoever sends may want it written.
const (
	sayEvery = time.Second
	sayBurst = 10
)

// saying is a token bucket for log lines that counts those which it withheld. The zero value is full.
type saying struct {
	spent    float64
	last     int64  // Unix nanoseconds
	withheld uint64 // since the last line
}

// may reports whether a line may be written at now, and how many were not since the one before.
func (s *saying) may(now int64) (withheld uint64, ok bool) {
	s.spent = max(0, s.spent-max(0, float64(now-s.last)/float64(sayEvery)))
	s.last = now
	if s.spent+1 > sayBurst {
		s.withheld++
		return 0, false
	}
	s.spent++
	withheld, s.withheld = s.withheld, 0
	return withheld, true
}
