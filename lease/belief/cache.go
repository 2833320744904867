package belief

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"weft/lease"
	"weft/lease/atomicfile"
)

// ErrNoCache says that there is no usable cached state.
var ErrNoCache = errors.New("no cached state")

// CacheFile, in the state directory, is where a Cache keeps the last good state.
const CacheFile = "lease.json"

const (
	cacheVersion = 1
	maxCache     = 256 << 20 // bytes: some 500,000 records
)

// Cached is the last good state: what a daemon starts with while the store does
// not answer. Its configuration has been served: Options.Unproven.
type Cached struct {
	// Own is the record that we held; zero Subnets if none.
	Own lease.Record
	// Memory is what we believed of the store.
	Memory Memory
}

// Cache keeps one Cached on disk. It is not safe for concurrent use.
type Cache struct {
	path, store string
	seed        maphash.Seed
	last        uint64 // a sum of the content on disk without what changes by itself; 0 for none
}

// cacheJSON is the file.
type cacheJSON struct {
	Version int
	Store   string
	Own     lease.Record
	Cluster string
	// Revision is the store's; a lower one than the last seen only weakens a check.
	Revision int64
	Config   string
	Why      string `json:",omitempty"`
	Peers    []peerJSON
}

type peerJSON struct {
	Record lease.Record
	Until  time.Time
	Held   bool `json:",omitempty"`
}

// NewCache returns the cache in dir for one store. store names it (its prefix is
// enough): the state of another store is not used.
func NewCache(dir, store string) *Cache {
	return &Cache{path: filepath.Join(dir, CacheFile), store: store, seed: maphash.MakeSeed()}
}

// Load reads the state. Any fault of the file gives an error that wraps ErrNoCache, and the caller continues
// without a state.
func (c *Cache) Load() (Cached, error) {
	in, err := c.read()
	if err != nil {
		return Cached{}, fmt.Errorf("%w: %s: %w", ErrNoCache, c.path, err)
	}
	out := Cached{Own: in.Own, Memory: Memory{
		ClusterID: in.Cluster, Revision: in.Revision, Config: []byte(in.Config), Why: in.Why,
	}}
	records := make([]lease.Record, len(in.Peers)) // without the rest of the file
	for i, p := range in.Peers {
		records[i] = p.Record
		out.Memory.Peers = append(out.Memory.Peers, Remembered{Record: &records[i], Until: p.Until, Held: p.Held})
	}
	c.last = c.settled(out)
	return out, nil
}

// CachedConfig returns the network configuration of the last good state in dir, from any store.
func CachedConfig(dir string) (lease.NetworkConfig, error) {
	in, err := NewCache(dir, "").load()
	if err != nil {
		return lease.NetworkConfig{}, fmt.Errorf("%w: %w", ErrNoCache, err)
	}
	return lease.ParseNetworkConfig([]byte(in.Config))
}

// CachedStore names the store that the last good state in dir is of, as NewCache was told; "" if there is
// none.
func CachedStore(dir string) string {
	in, _ := NewCache(dir, "").load()
	return in.Store
}

func (c *Cache) read() (cacheJSON, error) {
	in, err := c.load()
	if err != nil {
		return in, err
	}
	return in, in.check(c.store)
}

// load reads the file, and checks nothing.
func (c *Cache) load() (cacheJSON, error) {
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
	err = json.Unmarshal(b, &in)
	return in, err
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
	if _, err := lease.ParseNetworkConfig([]byte(in.Config)); err != nil {
		return err
	}
	seen := map[lease.Subnets]bool{}
	for _, p := range in.Peers {
		if p.Record.Subnets == (lease.Subnets{}) || seen[p.Record.Subnets] || p.Until.IsZero() {
			return fmt.Errorf("record %q is incomplete or there twice", p.Record.Key())
		}
		seen[p.Record.Subnets] = true
	}
	return nil
}

// Save replaces the state on disk in one step if more than times changed since the last Save or Load. Only
// our user can read the file. Save reports whether it wrote.
func (c *Cache) Save(s Cached) (written bool, err error) {
	settled := c.settled(s)
	if settled == c.last {
		return false, nil
	}
	write := func(w io.Writer) error { return c.encode(w, s) }
	if err := atomicfile.WriteFunc(c.path, 0o600, 0o700, write); err != nil {
		return false, fmt.Errorf("cache: %w", err)
	}
	c.last = settled
	return true, nil
}

// encode writes the file, peer by peer: all at once it would take several times the memory of
// what it is about.
func (c *Cache) encode(w io.Writer, s Cached) error {
	b, err := json.MarshalIndent(cacheJSON{
		Version: cacheVersion, Store: c.store, Own: s.Own,
		Cluster: s.Memory.ClusterID, Revision: s.Memory.Revision, Config: string(s.Memory.Config),
		Why:   s.Memory.Why,
		Peers: []peerJSON{},
	}, "", " ")
	if err != nil {
		return err
	}
	head, whole := bytes.CutSuffix(b, []byte("]\n}"))
	if !whole {
		return fmt.Errorf("the list of peers is not last in %s", b)
	}
	out := bufio.NewWriter(w)
	_, _ = out.Write(head) // Flush has the error
	lines := json.NewEncoder(out)
	for i, p := range s.Memory.Peers {
		separator := ",\n"
		if i == 0 {
			separator = "\n"
		}
		_, _ = out.WriteString(separator)
		line := peerJSON{*p.Record, p.Until, p.Held || p.Leaving}
		if err := lines.Encode(&line); err != nil {
			return err
		}
	}
	_, _ = out.WriteString("]}\n")
	return out.Flush()
}

// settled is a sum of s without the store's revision and without times of expiry: the first moves with every
// write to the store, and a renewal shows in the record's own revision. It is never 0.
func (c *Cache) settled(s Cached) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	out := json.NewEncoder(&h) // a sum takes everything; what is no JSON is not written either
	record := func(r lease.Record, held bool) {
		r.Expires = time.Time{}
		_ = out.Encode(peerJSON{Record: r, Held: held})
	}
	_ = out.Encode([]any{s.Memory.ClusterID, s.Memory.Why, s.Memory.Config})
	record(s.Own, false)
	for _, p := range s.Memory.Peers {
		record(*p.Record, p.Held || p.Leaving)
	}
	return max(h.Sum64(), 1)
}
