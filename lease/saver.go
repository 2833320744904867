package lease

import "time"

// The cache is written no sooner after the last time than in saveWait for each record, and saveMost
// in all: writing is work for every record, and in a large network some record changes all the time.
const (
	saveWait = 500 * time.Microsecond
	saveMost = 10 * time.Second
)

// Saver says when the cache is to be written. The zero value has nothing to write. It has no clock and does
// no I/O, and is not safe for concurrent use.
type Saver struct {
	last    time.Time // when it was written
	own     Subnets   // ours in it
	writing Subnets   // ours in what is being written
	due     time.Time // when it is to be written; zero for no need
	failed  time.Time // when it could not be; zero if it was since
	err     error     // why it could not be; nil if it was
}

// Due is when the cache is to be written; zero for no need.
func (s *Saver) Due() time.Time { return s.due }

// Err is why the state is not saved; nil if it is, or if there was nothing to save.
func (s *Saver) Err() error { return s.err }

// Want says that what would be written, so many records and own as ours, may be news, and reports whether it
// is to be written at once: what our own lease is, is. Else Due says when.
func (s *Saver) Want(now time.Time, records int, own Subnets) bool {
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

// Begin notes that the cache is being written, with own as ours.
func (s *Saver) Begin(own Subnets) { s.due, s.writing = time.Time{}, own }

// Skip notes that nothing is to be written now.
func (s *Saver) Skip() { s.due = time.Time{} }

// Done notes what became of it: whether the file is another one now, and the error. It reports whether the error
// is another than the last time. A failure costs only the next start.
func (s *Saver) Done(now time.Time, written bool, err error) (news bool) {
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
