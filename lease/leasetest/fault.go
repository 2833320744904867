package leasetest

import (
	"maps"
	"slices"
	"time"
)

// SetDown starts or ends an outage. Records expire meanwhile, as they do in an
// etcd that only we cannot reach.
func (s *Store) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if down && !s.down && !s.heard.IsZero() {
		s.heard = time.Now()
	}
	s.down = down
	s.touch()
}

// ForgetReplies lets the next n writes be done and be reported as failed.
func (s *Store) ForgetReplies(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget = n
}

// SetLatency lets the reply to each Snapshot take d, so that what a node reads is
// old when it writes: many nodes that start together then race.
func (s *Store) SetLatency(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency = d
}

// SetConfig replaces the configuration; nil deletes it.
func (s *Store) SetConfig(config []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = slices.Clone(config)
	s.revision++
	s.touch()
}

// PutRaw writes any key and value, as an operator or a stranger would; ttl 0 never ends.
func (s *Store) PutRaw(key string, value []byte, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	s.put(key, value, ttl)
}

// Remove deletes a key, as an operator would.
func (s *Store) Remove(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	s.remove(key)
}

// Value returns the value under key, nil if there is none.
func (s *Store) Value(key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	return slices.Clone(s.entries[key].value)
}

// Wipe makes the store a new, empty one, with a new cluster id and no configuration.
func (s *Store) Wipe(cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster, s.revision, s.config = cluster, 1, nil
	clear(s.entries)
	s.touch()
}

// Backup is what Restore puts back.
type Backup struct {
	cluster  string
	revision int64
	config   []byte
	entries  map[string]entry
}

// Backup returns a copy of everything.
func (s *Store) Backup() Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Backup{s.cluster, s.revision, slices.Clone(s.config), maps.Clone(s.entries)}
}

// Restore goes back to b. Leases start their time again, as in an etcd that was
// restored from a snapshot. cluster "" keeps the backup's cluster id.
func (s *Store) Restore(b Backup, cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster, s.revision, s.config, s.entries = b.cluster, b.revision, slices.Clone(b.config),
		maps.Clone(b.entries)
	if cluster != "" {
		s.cluster = cluster
	}
	for key, e := range s.entries {
		if !e.expires.IsZero() {
			e.expires = time.Now().Add(24 * time.Hour)
			s.entries[key] = e
		}
	}
	s.touch()
}
