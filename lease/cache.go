package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// ErrNoCache says that there is no usable cached state.
var ErrNoCache = errors.New("no cached state")

const (
	cacheVersion = 1
	cacheFile    = "lease.json"
	maxCache     = 256 << 20 // bytes: some 500,000 records
)

// Cached is the last good state: what a daemon starts with while the store does
// not answer.
type Cached struct {
	// Own is the record that we held; zero Subnets if none.
	Own Record
	// Memory is what we believed of the store.
	Memory Memory
}

// Cache keeps one Cached on disk. It is not safe for concurrent use.
type Cache struct {
	path, store string
	last        []byte // the content on disk without what changes by itself
}

// cacheJSON is the file.
type cacheJSON struct {
	Version int
	Store   string
	Own     Record
	Cluster string
	// Revision is the store's; a lower one than the last seen only weakens a check.
	Revision int64
	Config   string
	Why      string `json:",omitempty"`
	Peers    []peerJSON
}

type peerJSON struct {
	Record Record
	Until  time.Time
	Held   bool `json:",omitempty"`
}

// NewCache returns the cache in dir for one store. store names it (its prefix is
// enough): the state of another store is not used.
func NewCache(dir, store string) *Cache {
	return &Cache{path: filepath.Join(dir, cacheFile), store: store}
}

// Load reads the state back. Whatever is wrong with the file, the error says it
// and wraps ErrNoCache: the caller goes on without.
func (c *Cache) Load() (Cached, error) {
	in, err := c.read()
	if err != nil {
		return Cached{}, fmt.Errorf("%w: %s: %w", ErrNoCache, c.path, err)
	}
	out := Cached{Own: in.Own, Memory: Memory{
		ClusterID: in.Cluster, Revision: in.Revision, Config: []byte(in.Config), Why: in.Why,
	}}
	for _, p := range in.Peers {
		out.Memory.Peers = append(out.Memory.Peers, Remembered{Record: p.Record, Until: p.Until, Held: p.Held})
	}
	c.last = c.settled(out)
	return out, nil
}

func (c *Cache) read() (cacheJSON, error) {
	var in cacheJSON
	info, err := os.Stat(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return in, fs.ErrNotExist
	} else if err != nil {
		return in, err
	}
	if info.Size() > maxCache {
		return in, fmt.Errorf("%d bytes are more than %d", info.Size(), maxCache)
	}
	b, err := os.ReadFile(c.path)
	if err != nil {
		return in, err
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return in, err
	}
	return in, in.check(c.store)
}

func (in *cacheJSON) check(store string) error {
	switch {
	case in.Version != cacheVersion:
		return fmt.Errorf("version %d, want %d", in.Version, cacheVersion)
	case in.Store != store:
		return fmt.Errorf("it is of the store %q, and ours is %q", in.Store, store)
	case in.Cluster == "" || in.Revision < 0:
		return fmt.Errorf("cluster %q at revision %d", in.Cluster, in.Revision)
	}
	if _, err := ParseNetworkConfig([]byte(in.Config)); err != nil {
		return err
	}
	seen := map[Subnets]bool{}
	for _, p := range in.Peers {
		if p.Record.Subnets == (Subnets{}) || seen[p.Record.Subnets] || p.Until.IsZero() {
			return fmt.Errorf("record %q is incomplete or there twice", p.Record.Key())
		}
		seen[p.Record.Subnets] = true
	}
	return nil
}

// Save replaces the state on disk, atomically and readable by us alone, if
// anything but clocks has changed since the last Save or Load.
func (c *Cache) Save(s Cached) error {
	settled := c.settled(s)
	if bytes.Equal(settled, c.last) {
		return nil
	}
	b, err := json.MarshalIndent(c.file(s), "", " ")
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	if err := writeFile(c.path, append(b, '\n')); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	c.last = settled
	return nil
}

func (c *Cache) file(s Cached) cacheJSON {
	out := cacheJSON{
		Version: cacheVersion, Store: c.store, Own: s.Own,
		Cluster: s.Memory.ClusterID, Revision: s.Memory.Revision, Config: string(s.Memory.Config), Why: s.Memory.Why,
		Peers: []peerJSON{},
	}
	for _, p := range s.Memory.Peers {
		out.Peers = append(out.Peers, peerJSON{Record: p.Record, Until: p.Until, Held: p.Held})
	}
	return out
}

// settled encodes s without the store's revision and without times of expiry:
// the first moves with every write to the store, and a new life shows in the
// record's own revision.
func (c *Cache) settled(s Cached) []byte {
	s.Memory.Revision, s.Own.Expires = 0, time.Time{}
	s.Memory.Peers = slices.Clone(s.Memory.Peers)
	for i := range s.Memory.Peers {
		p := &s.Memory.Peers[i]
		p.Until, p.Expires = time.Time{}, time.Time{}
	}
	b, _ := json.Marshal(c.file(s)) // an error gives nil, which Save then reports
	return b
}
