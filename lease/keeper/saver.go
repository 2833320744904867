package keeper

import (
	"time"

	"weft/lease"
)

// The cache is written no sooner after the last time than in saveWait for each record, and saveMost
// in all: writing is work for every record, and in a large network some record changes all the time.
const (
	saveWait = 500 * time.Microsecond
	saveMost = 10 * time.Second
)

// saver schedules the writes of the cache. The zero value has nothing to write. It has no clock and does no
// I/O. It is not safe for concurrent use.
type saver struct {
	last    time.Time     // when it was written
	own     lease.Subnets // ours in it
	writing lease.Subnets // ours in what is being written
	due     time.Time     // when it is to be written; zero for no need
	failed  time.Time     // when it could not be; zero if it was since
	err     error         // why it could not be; nil if it was
}

// want reports a state that may be new, with this number of records and own as our subnets. It returns true
// if the state is to be written at once, which a change of our own lease is. Otherwise due is the time.
func (s *saver) want(now time.Time, records int, own lease.Subnets) bool {
	if !s.failed.IsZero() {
		s.due = s.failed.Add(saveMost)
		return false
	}
	due := s.last.Add(min(saveWait*time.Duration(records), saveMost))
	if now.Before(due) && own == s.own {
		s.due = due
		return false
	}
	return true
}

// begin notes that the cache is being written, with own as ours.
func (s *saver) begin(own lease.Subnets) { s.due, s.writing = time.Time{}, own }

// done takes the result of a write: whether the file changed, and the error. It reports whether the error
// differs from the last one. A failure costs only the next start.
func (s *saver) done(now time.Time, written bool, err error) (news bool) {
	if err != nil {
		news = s.err == nil || s.err.Error() != err.Error()
		s.failed, s.err = now, err
		s.due = now.Add(saveMost)
		return news
	}
	s.failed, s.err = time.Time{}, nil
	if written {
		s.last, s.own = now, s.writing
	}
	return false
}
