package kube

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"weft/lease"
	"weft/lease/keeper"
)

// table is what the watch knows: of each Node what a Set needs and nothing else, decoded once for
// each change of it. The watch writes it, and everybody may read it. It tells a Life what is new.
type table struct {
	keys keys
	cfg  lease.NetworkConfig
	own  string // the name of our Node
	seed maphash.Seed
	// heard is called after each word of the API server, and tell with what is new.
	heard func()
	tell  func(news)

	mu       sync.Mutex // protects what follows
	synced   bool
	revision int64
	byName   map[string]*node
	ours     *corev1.Node // trimmed; nil if it is not there
}

// node is one Node. It is immutable.
type node struct {
	// Record has Kube and the subnets of the families that are on, and the rest of a Node that takes part.
	lease.Record
	sum     uint64          // of what it was made from
	managed bool            // it takes part
	bad     *lease.Rejected // why it does not though it should; nil if it does
}

var (
	_ cache.ReflectorStore         = (*table)(nil)
	_ cache.TransformingStore      = (*table)(nil)
	_ cache.ReflectorBookmarkStore = (*table)(nil)
	_ cache.ResourceVersionUpdater = (*table)(nil)
)

func newTable(k keys, cfg lease.NetworkConfig, own string, heard func(), tell func(news)) *table {
	return &table{keys: k, cfg: cfg, own: own, seed: maphash.MakeSeed(), heard: heard, tell: tell,
		byName: map[string]*node{}}
}

// trim returns a Node with what we need of it: in a list of thousands the rest is most of the memory.
func (s *table) trim(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID,
		ResourceVersion:   n.ResourceVersion,
		CreationTimestamp: n.CreationTimestamp}}
	out.Spec.PodCIDR, out.Spec.PodCIDRs = n.Spec.PodCIDR, n.Spec.PodCIDRs
	keep := s.keys.written()
	wanted := keep[:]
	if n.Name == s.own {
		wanted = append(wanted, s.keys.overwrite, s.keys.overwriteV6)
		if i := slices.IndexFunc(n.Status.Conditions, isNetworkCondition); i >= 0 {
			out.Status.Conditions = []corev1.NodeCondition{n.Status.Conditions[i]}
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
func (s *table) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		n, ok := obj.(*corev1.Node)
		if !ok {
			return obj, nil
		}
		s.heard()
		return s.trim(n), nil
	}
}

// node decodes a Node. Its annotations may be garbage; that costs it alone.
func (k keys) node(cfg lease.NetworkConfig, n *corev1.Node, sum uint64) *node {
	out := &node{sum: sum, managed: k.isManaged(n.Annotations)}
	out.Kube = &lease.KubeNode{Name: n.Name, UID: string(n.UID)}
	all, err := parseCIDRs(cidrsOf(n))
	out.Subnets = cfg.InUse(all)
	if !out.managed {
		return out
	}
	if err == nil {
		out.Attrs, err = k.decode(n.Annotations)
	}
	reason := lease.RejectValue
	if err == nil && out.Subnets == (lease.Subnets{}) {
		reason, err = lease.RejectFamily, fmt.Errorf("it has no podCIDR of a family that is on")
	}
	if err != nil {
		out.bad = &lease.Rejected{Key: n.Name, Reason: reason, Detail: err.Error()}
		return out
	}
	if !n.CreationTimestamp.IsZero() {
		out.Created = n.CreationTimestamp.Unix()
	}
	return out
}

// sum is of everything that node and our own Node go by.
func (s *table) sum(n *corev1.Node) uint64 {
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
func (s *table) Add(obj any) error {
	s.heard()
	n, ok := obj.(*corev1.Node)
	if !ok {
		return fmt.Errorf("%T is no Node", obj)
	}
	s.mu.Lock()
	said := s.put(n)
	s.mu.Unlock()
	s.tell(said)
	return nil
}

// Update is Add.
func (s *table) Update(obj any) error { return s.Add(obj) }

// put stores n and returns what is new by it.
func (s *table) put(n *corev1.Node) (said news) {
	sum, before := s.sum(n), s.byName[n.Name]
	if n.Name == s.own {
		if olderThan(n, s.ours) {
			return said // than the answer to our last write
		}
		s.ours = s.trim(n)
	}
	if before == nil || before.sum != sum {
		s.byName[n.Name] = s.keys.node(s.cfg, s.trim(n), sum)
		said.changed, said.urgent = s.synced, n.Name == s.own
	}
	return said
}

// olderThan reports whether n is an older version of the object than known, which is nil for none.
func olderThan(n, known *corev1.Node) bool {
	return known != nil && n.UID == known.UID && version(n.ResourceVersion) < version(known.ResourceVersion)
}

// Delete takes a Node away.
func (s *table) Delete(obj any) error {
	s.heard()
	n, ok := obj.(*corev1.Node)
	if !ok {
		return fmt.Errorf("%T is no Node", obj)
	}
	var said news
	s.mu.Lock()
	_, known := s.byName[n.Name]
	delete(s.byName, n.Name)
	said.changed = known && s.synced
	if n.Name == s.own {
		s.ours = nil
		said.urgent = true
	}
	s.mu.Unlock()
	s.tell(said)
	return nil
}

// Replace takes in a complete list, and so heals whatever was missed.
func (s *table) Replace(list []any, resourceVersion string) error {
	s.heard()
	s.mu.Lock()
	known := s.byName
	s.byName, s.ours = make(map[string]*node, len(list)), nil
	for _, obj := range list {
		n, ok := obj.(*corev1.Node)
		if !ok {
			continue
		}
		sum := s.sum(n)
		if before := known[n.Name]; before != nil && before.sum == sum {
			s.byName[n.Name] = before
		} else {
			s.byName[n.Name] = s.keys.node(s.cfg, s.trim(n), sum)
		}
		if n.Name == s.own {
			s.ours = s.trim(n)
		}
	}
	s.synced, s.revision = true, version(resourceVersion)
	s.mu.Unlock()
	s.tell(news{changed: true, urgent: true})
	return nil
}

// take takes in what a watch has said, where there is no Reflector to call the methods. Their only error is
// an object that is no Node.
func (s *table) take(e keeper.Event) {
	switch e := e.(type) {
	case Listed:
		list := make([]any, len(e.Nodes))
		for i, n := range e.Nodes {
			list[i] = n
		}
		_ = s.Replace(list, e.Version)
	case Saw:
		_ = s.Add(e.Node)
		s.UpdateResourceVersion(e.Node.ResourceVersion)
	case Gone:
		_ = s.Delete(e.Node)
		s.UpdateResourceVersion(e.Node.ResourceVersion)
	case Bookmarked:
		s.UpdateResourceVersion(e.Version)
	}
}

// Resync does nothing, since whoever reads the table reads all of it.
func (s *table) Resync() error { return nil }

// Bookmark is how the API server says that nothing has happened.
func (s *table) Bookmark(string) error {
	s.heard()
	return nil
}

// UpdateResourceVersion notes how far the watch has come.
func (s *table) UpdateResourceVersion(rv string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision = version(rv)
}

// answered takes in our Node as the answer to a write has it. That it is another object by now is for the
// watch to tell, together with what became of all others.
func (s *table) answered(n *corev1.Node) {
	var said news
	s.mu.Lock()
	if s.ours != nil && s.ours.UID == n.UID {
		said = s.put(n)
	}
	s.mu.Unlock()
	s.tell(said)
}

// ourNode returns our Node, trimmed, or nil. It is changed by nobody.
func (s *table) ourNode() *corev1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ours
}

// read returns all Nodes as they are now.
func (s *table) read() view {
	s.mu.Lock()
	defer s.mu.Unlock()
	byName := func(a, b *node) int { return cmp.Compare(a.Kube.Name, b.Kube.Name) }
	return view{read: true, revision: s.revision, nodes: slices.SortedFunc(maps.Values(s.byName), byName)}
}

// at is how far the watch has come.
func (s *table) at() int64 {
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

func (s *table) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byName)
}
