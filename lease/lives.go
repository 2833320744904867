package lease

// Current returns peers, which are those of a Set, with the times of expiry and revisions that the store
// has told since: a renewal makes no new Set. The slice is new. It is safe for concurrent use.
func (k *Keeper) Current(peers []Record) []Record {
	k.mu.Lock()
	mem := k.lives
	k.mu.Unlock()
	out := make([]Record, 0, len(peers))
	for _, r := range peers {
		if i, found := mem.find(r.Subnets); found {
			now := mem.Peers[i].Record
			r.Expires, r.Revision, r.Reservation = now.Expires, now.Revision, now.Reservation
		}
		out = append(out, r)
	}
	return out
}
