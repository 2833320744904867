package probe

import "time"

// moment is a time of a Core in eight bytes, in place of the 24 of a time.Time: of each of thousands of ways
// a dozen are kept. It counts from an hour before the core's first step, on the clock that does not jump; the
// zero moment is none.
type moment time.Duration

func (m moment) IsZero() bool               { return m == 0 }
func (m moment) Add(d time.Duration) moment { return m + moment(d) }
func (m moment) Sub(o moment) time.Duration { return time.Duration(m - o) }
func (m moment) After(o moment) bool        { return m > o }
func (m moment) Before(o moment) bool       { return m < o }

// clock turns times into moments, and back.
type clock struct{ epoch, now time.Time }

// moment notes that it is t now.
func (c *clock) moment(t time.Time) moment {
	if c.epoch.IsZero() {
		c.epoch = t.Add(-time.Hour)
	}
	c.now = t
	return moment(t.Sub(c.epoch))
}

// time is when m was, by the clock on the wall as it goes now; the zero time for none.
func (c *clock) time(m moment) time.Time {
	if m.IsZero() {
		return time.Time{}
	}
	return c.now.Add(m.Sub(moment(c.now.Sub(c.epoch))))
}
