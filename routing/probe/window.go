package probe

// windowLen is how many datagrams of one direction the loss is computed from.
const windowLen = 64

// window knows which of the last datagrams of one direction arrived, by their sequence numbers. Its zero
// value is empty.
type window struct {
	session uint32 // the sender's
	latest  uint32 // the highest number, 0 for none
	bits    uint64 // bit i is set if latest-i arrived
	first   uint32 // numbers below it are not counted
}

// arrived notes a number of a session, 0 for none. One that is far behind, or has been noted, changes
// nothing; another session begins anew.
func (w *window) arrived(session, seq uint32) {
	switch {
	case seq == 0 && session != w.session:
		*w = window{session: session}
	case seq == 0:
	case session != w.session || w.latest == 0:
		*w = window{session: session, latest: seq, bits: 1, first: seq}
	case seq > w.latest:
		w.bits = w.bits<<(min(seq-w.latest, windowLen)) | 1
		w.latest = seq
	case w.latest-seq < windowLen:
		w.bits |= 1 << (w.latest - seq)
	}
}

// heldBackFor is how many of the newest numbers are not judged yet: packets overtake each other.
const heldBackFor = 1

// longestRun is how many of a series of datagrams that were lost one after the other count as lost. A longer
// series is a way that was down, of which is said that it did not answer, and no loss.
const longestRun = 4

// loss counts the datagrams that did not arrive, among the newest so many of the window.
func (w *window) loss(most int) (l Loss) {
	run := 0
	for i := range most {
		seq := w.latest - uint32(i)
		if seq < w.first || seq > w.latest || seq == 0 {
			break
		}
		if w.bits&(1<<i) != 0 {
			run = 0
			l.Of++
			continue
		}
		if i < heldBackFor {
			continue
		}
		if run++; run <= longestRun {
			l.Lost++
			l.Of++
		}
	}
	return l
}
