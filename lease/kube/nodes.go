package kube

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"weft/lease"
	"weft/lease/kube/internal/objects"
)

// nodes is what the watch knows: of each Node what a Set needs and nothing else, decoded once for
// each change of it. The watch writes; everybody may read.
type nodes struct {
	keys keys
	cfg  lease.NetworkConfig
	own  string // the name of our Node
	seed maphash.Seed
	heard,
	changed func() // called after an answer, and after a change that matters

	mu       sync.Mutex // protects what follows
	synced   bool
	revision int64
	byName   map[string]*node
	ours     *objects.Node // trimmed; nil if it is not there
	first    time.Time     // when the first change came that nobody has taken; zero for none
	last     time.Time     // and the last one
	urgent   bool          // the changes should be taken now
}

// node is one Node. It is immutable.
type node struct {
	sum     uint64 // of what it was made from
	uid     string
	subnets lease.Subnets // of the families that are on
	managed bool
	record  lease.Record
	bad     *lease.Rejected // instead of the record
}

var (
	_ cache.ReflectorStore         = (*nodes)(nil)
	_ cache.TransformingStore      = (*nodes)(nil)
	_ cache.ReflectorBookmarkStore = (*nodes)(nil)
	_ cache.ResourceVersionUpdater = (*nodes)(nil)
)

func newNodes(k keys, cfg lease.NetworkConfig, own string, heard, changed func()) *nodes {
	return &nodes{keys: k, cfg: cfg, own: own, seed: maphash.MakeSeed(), heard: heard, changed: changed, byName: map[string]*node{}}
}

// trim returns a Node with what we need of it: in a list of thousands the rest is most of the memory.
func (s *nodes) trim(n *objects.Node) *objects.Node {
	out := &objects.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion,
		CreationTimestamp: n.CreationTimestamp}}
	out.Spec.PodCIDR, out.Spec.PodCIDRs = n.Spec.PodCIDR, n.Spec.PodCIDRs
	keep := s.keys.written()
	wanted := keep[:]
	if n.Name == s.own {
		wanted = append(wanted, s.keys.overwrite, s.keys.overwriteV6)
		if i := slices.IndexFunc(n.Status.Conditions, isNetworkCondition); i >= 0 {
			out.Status.Conditions = []objects.NodeCondition{n.Status.Conditions[i]}
		}
	}
	for _, key := range wanted {
		if v, ok := n.Annotations[key]; ok {
			if out.Annotations == nil {
				out.Annotations = make(map[string]string, len(wanted))
			}
			out.Annotations[key] = v
		}
	}
	return out
}

// Transformer trims what a list is gathered from.
func (s *nodes) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		n, ok := obj.(*objects.Node)
		if !ok {
			return obj, nil
		}
		s.heard()
		return s.trim(n), nil
	}
}

// make decodes a Node. What it says of itself may be garbage; that costs it alone.
func (s *nodes) make(n *objects.Node, sum uint64) *node {
	out := &node{sum: sum, uid: string(n.UID), managed: s.keys.isManaged(n.Annotations)}
	all, err := parseCIDRs(cidrsOf(n))
	out.subnets = s.cfg.InUse(all)
	if !out.managed {
		return out
	}
	var attrs lease.Attrs
	if err == nil {
		attrs, err = s.keys.decode(n.Annotations)
	}
	reason := lease.RejectValue
	if err == nil && out.subnets == (lease.Subnets{}) {
		reason, err = lease.RejectFamily, fmt.Errorf("it has no podCIDR of a family that is on")
	}
	if err != nil {
		out.bad = &lease.Rejected{Key: n.Name, Reason: reason, Detail: err.Error()}
		return out
	}
	out.record = lease.Record{Subnets: out.subnets, Attrs: attrs, Kube: &lease.KubeNode{Name: n.Name, UID: string(n.UID)}}
	if !n.CreationTimestamp.IsZero() {
		out.record.Created = n.CreationTimestamp.Unix()
	}
	return out
}

// sum is of everything that make and our own Node go by.
func (s *nodes) sum(n *objects.Node) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	word := func(w string) { maphash.WriteComparable(&h, w) }
	word(string(n.UID))
	for _, c := range cidrsOf(n) {
		word(c)
	}
	wanted := s.keys.written()
	all := append(wanted[:], s.keys.overwrite, s.keys.overwriteV6)
	for _, key := range all {
		v, ok := n.Annotations[key]
		maphash.WriteComparable(&h, ok)
		word(v)
	}
	if n.Name == s.own {
		for _, c := range n.Status.Conditions {
			if isNetworkCondition(c) {
				word(string(c.Status) + "\x00" + c.Reason + "\x00" + c.Message)
			}
		}
	}
	return h.Sum64()
}

// Add takes in a Node that is new, or that has changed.
func (s *nodes) Add(obj any) error {
	s.heard()
	n, ok := obj.(*objects.Node)
	if !ok {
		return fmt.Errorf("%T is no Node", obj)
	}
	s.mu.Lock()
	news := s.put(n)
	s.mu.Unlock()
	if news {
		s.changed()
	}
	return nil
}

// Update is Add.
func (s *nodes) Update(obj any) error { return s.Add(obj) }

// put stores n and reports whether it says anything new.
func (s *nodes) put(n *objects.Node) bool {
	sum, before := s.sum(n), s.byName[n.Name]
	if n.Name == s.own {
		if s.ours != nil && version(n.ResourceVersion) < version(s.ours.ResourceVersion) && n.UID == s.ours.UID {
			return false // older than the answer to our last write
		}
		s.ours = s.trim(n)
	}
	if before != nil && before.sum == sum {
		return false
	}
	s.byName[n.Name] = s.make(s.trim(n), sum)
	s.touch(n.Name == s.own)
	return true
}

// Delete takes a Node away.
func (s *nodes) Delete(obj any) error {
	s.heard()
	n, ok := obj.(*objects.Node)
	if !ok {
		return fmt.Errorf("%T is no Node", obj)
	}
	s.mu.Lock()
	_, known := s.byName[n.Name]
	delete(s.byName, n.Name)
	if n.Name == s.own {
		s.ours = nil
	}
	if known {
		s.touch(n.Name == s.own)
	}
	s.mu.Unlock()
	if known {
		s.changed()
	}
	return nil
}

// Replace takes in a complete list, and so heals whatever was missed.
func (s *nodes) Replace(list []any, resourceVersion string) error {
	s.heard()
	s.mu.Lock()
	known := s.byName
	s.byName, s.ours = make(map[string]*node, len(list)), nil
	for _, obj := range list {
		n, ok := obj.(*objects.Node)
		if !ok {
			continue
		}
		sum := s.sum(n)
		if before := known[n.Name]; before != nil && before.sum == sum {
			s.byName[n.Name] = before
		} else {
			s.byName[n.Name] = s.make(s.trim(n), sum)
		}
		if n.Name == s.own {
			s.ours = s.trim(n)
		}
	}
	s.synced, s.revision = true, version(resourceVersion)
	s.touch(true)
	s.mu.Unlock()
	s.changed()
	return nil
}

// Resync does nothing: whoever reads takes everything.
func (s *nodes) Resync() error { return nil }

// Bookmark is how the API server says that nothing has happened.
func (s *nodes) Bookmark(string) error {
	s.heard()
	return nil
}

// UpdateResourceVersion notes how far the watch has come.
func (s *nodes) UpdateResourceVersion(rv string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision = version(rv)
}

// touch notes a change, under the lock.
func (s *nodes) touch(urgent bool) {
	s.last = time.Now()
	if s.first.IsZero() {
		s.first = s.last
	}
	s.urgent = s.urgent || urgent
}

// answered takes in our Node as the answer to a write has it. That it is another object by now is
// for the watch to tell, together with what became of all others.
func (s *nodes) answered(n *objects.Node) {
	s.mu.Lock()
	news := s.ours != nil && s.ours.UID == n.UID && s.put(n)
	s.mu.Unlock()
	if news {
		s.changed()
	}
}

// ourNode returns our Node, trimmed, or nil. Nobody changes it.
func (s *nodes) ourNode() *objects.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ours
}

// A burst of changes becomes one set once it is quiet for settleQuiet, or every settleMost while it lasts.
const (
	settleQuiet = 50 * time.Millisecond
	settleMost  = time.Second
)

// due is when the changes that nobody has taken are to be; the zero time if there are none.
func (s *nodes) due() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.first.IsZero() || !s.synced:
		return time.Time{}
	case s.urgent:
		return s.first
	}
	at := s.last.Add(settleQuiet)
	if most := s.first.Add(settleMost); most.Before(at) {
		at = most
	}
	return at
}

// view is all Nodes at one moment.
type view struct {
	revision int64
	ours     *objects.Node
	records  []lease.Record // of all others, by name
	bad      []lease.Rejected
	claims   []claim
}

// take returns everything as it is now. Of the records that were accepted last, by
// subnets, and of those that were once, the view has the claims.
func (s *nodes) take(accepted, once []lease.Record) view {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first, s.urgent = time.Time{}, false
	v := view{revision: s.revision, ours: s.ours, records: make([]lease.Record, 0, len(s.byName))}
	v.claims = s.claims(accepted, once)
	for name, n := range s.byName {
		switch {
		case name == s.own:
			continue
		case n.bad != nil:
			v.bad = append(v.bad, *n.bad)
		case n.managed:
			v.records = append(v.records, n.record)
		}
	}
	slices.SortFunc(v.records, func(a, b lease.Record) int { return cmp.Compare(a.Kube.Name, b.Kube.Name) })
	slices.SortFunc(v.bad, func(a, b lease.Rejected) int { return cmp.Compare(a.Key, b.Key) })
	return v
}

// claimed returns the first Node by name, other than ours, with a podCIDR that overlaps want,
// whether or not it takes part.
func (s *nodes) claimed(want lease.Subnets) (name string, theirs lease.Subnets) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, n := range s.byName {
		if other != s.own && n.subnets.Overlaps(want) && (name == "" || other < name) {
			name, theirs = other, n.subnets
		}
	}
	return name, theirs
}

// at is how far the watch has come.
func (s *nodes) at() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// version reads a resource version, which Kubernetes promises to be a number; 0 if it is not.
func version(rv string) int64 {
	n, err := strconv.ParseInt(rv, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// isSynced reports whether all Nodes have been read.
func (s *nodes) isSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

func (s *nodes) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byName)
}
