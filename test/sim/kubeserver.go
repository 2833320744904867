package sim

import (
	"encoding/json"
	"fmt"

	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft/lease"
	"weft/lease/kube"
)

// object is a Node in the API server, and who last said in it where the node is: a machine, or nobody. It
// never changes.
type object struct {
	*kube.Object
	author int
	since  time.Duration // when the author said so
}

// nodes is what the API server has at one version. It never changes.
type nodes struct {
	version int64
	all     []object // by name
}

func (i *nodes) find(name string) *object {
	at, found := slices.BinarySearchFunc(i.all, name, func(o object, name string) int {
		return strings.Compare(o.Name, name)
	})
	if !found {
		return nil
	}
	return &i.all[at]
}

// change is one version of a Node, or its end.
type change struct {
	version int64
	*kube.Object
	gone bool
}

// The apiServer is a model of the API server as lease/kube uses it: Nodes with a version each of one count,
// watches that go on from a version as long as the history has it, and patches of what is there. Lists and
// single Nodes are read from the newest. Beside it, a controller manager gives each Node a podCIDR, and a
// kubelet on each machine registers it.
type apiServer struct {
	now, backup *nodes
	history     []change // since oldest
	oldest      int64
	uids        int
	conflicts   int // how many of the next patches meet another write
	config      int // the number of the configuration in the ConfigMap
	wanted      int // of the one that an operator wants there
}

func newAPIServer(config int) *apiServer {
	first := &nodes{version: 1}
	return &apiServer{now: first, backup: first, oldest: 1, config: config, wanted: config}
}

const managed, publicIP, weftKey = kube.DefaultPrefix + "/kube-subnet-manager", kube.DefaultPrefix +
	"/public-ip", kube.DefaultPrefix + "/weft"

// subnetsOf are the podCIDRs of a Node.
func subnetsOf(n *kube.Object) (s lease.Subnets) {
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is4() {
			s.V4 = p
		} else if err == nil {
			s.V6 = p
		}
	}
	return s
}

// writeNode puts n in the place of what has its name, as of author.
func (c *Cluster) writeNode(n *kube.Object, author int) *kube.Object {
	a := c.api
	next := &nodes{version: a.now.version + 1}
	n.ResourceVersion = strconv.FormatInt(next.version, 10)
	was := a.now.find(n.Name)
	o := object{n, author, c.now}
	if was == nil {
		a.uids++
		n.UID = types.UID(fmt.Sprint("uid-", a.uids))
		n.CreationTimestamp = metav1.NewTime(epoch().Add(c.now))
	} else if was.author == author {
		o.since = was.since
	}
	if was == nil || subnetsOf(was.Object) != subnetsOf(n) ||
		was.Annotations[managed] != n.Annotations[managed] || was.Annotations[publicIP] != n.Annotations[publicIP] {
		if was != nil {
			c.excuse(subnetsOf(was.Object))
		}
		c.store.fresh = append(c.store.fresh, novelty{subnetsOf(n), n.Name, c.now})
	}
	next.all = slices.DeleteFunc(slices.Clone(a.now.all), func(o object) bool { return o.Name == n.Name })
	at, _ := slices.BinarySearchFunc(next.all, n.Name, func(o object, name string) int {
		return strings.Compare(o.Name, name)
	})
	next.all = slices.Insert(next.all, at, o)
	c.become(next, change{next.version, n, false})
	return n
}

// dropNode deletes a Node, as somebody does who may.
func (c *Cluster) dropNode(name string) {
	a := c.api
	o := a.now.find(name)
	if o == nil {
		return
	}
	c.excuse(subnetsOf(o.Object))
	next := &nodes{version: a.now.version + 1, all: slices.DeleteFunc(slices.Clone(a.now.all),
		func(o object) bool { return o.Name == name })}
	last := o.DeepCopy()
	last.ResourceVersion = strconv.FormatInt(next.version, 10)
	c.become(next, change{next.version, last, true})
}

// excuse notes that somebody who may has taken away what nodes with these subnets say. A network may use one
// family of them alone.
func (c *Cluster) excuse(s lease.Subnets) {
	c.store.gone[s], c.store.gone[lease.Subnets{V4: s.V4}] = c.now, c.now
}

// become makes next what the API server has, and has all watches told.
func (c *Cluster) become(next *nodes, how change) {
	c.api.now = next
	c.api.history = append(c.api.history, how)
	c.overtaken()
	c.log("nodes: %s", lazily(func() string { return describeNodes(next) }))
	for _, m := range c.machines {
		if p := m.process; p != nil && p.life != nil && p.follow != nil && c.reaches(m) {
			c.tellWatch(m, p, p.follow, how)
		}
	}
	if len(c.api.history) > historyMost {
		c.compactNodes()
	}
}

// historyMost is how many versions a watch can be late for.
const historyMost = 100

func (c *Cluster) compactNodes() {
	c.api.history, c.api.oldest = nil, c.api.now.version
}

// overtaken notes what nobody can tell any more who did not look meanwhile: that a Node is missing because
// the server went back.
func (c *Cluster) overtaken() {
	st := c.store
	st.lostNodes = slices.DeleteFunc(st.lostNodes, func(l lostNode) bool {
		if c.api.now.version < l.version {
			return false
		}
		c.excuse(l.Subnets)
		return true
	})
}

// lostNode is a Node that the server had at a version before it went back.
type lostNode struct {
	lease.Subnets
	version int64
}

// goBack makes the API server what it was, or another one.
func (c *Cluster) goBack(to *nodes) {
	a := c.api
	for _, o := range a.now.all {
		version, _ := strconv.ParseInt(o.ResourceVersion, 10, 64) // ours are numbers
		c.store.lostNodes = append(c.store.lostNodes, lostNode{subnetsOf(o.Object), version})
	}
	a.now = &nodes{version: to.version, all: slices.Clone(to.all)}
	a.history, a.oldest = nil, to.version
	for i, o := range a.now.all {
		a.now.all[i].since = c.now
		c.excuse(subnetsOf(o.Object))
		c.store.fresh = append(c.store.fresh, novelty{subnetsOf(o.Object), o.Name, c.now})
	}
	c.log("nodes: gone back: %s", lazily(func() string { return describeNodes(a.now) }))
	c.breakWatches()
}

// register has a machine's kubelet make its Node, if there is none, and the controller manager give it a
// podCIDR.
func (c *Cluster) register(m *machine) {
	if c.store.down || m.gone || c.api.now.find(m.node) != nil {
		return
	}
	n := &kube.Object{}
	n.Name, n.Annotations = m.node,
		map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	c.writeNode(n, nobody)
	c.at(c.after(10*time.Millisecond, 2*time.Second), func() { c.assign(m.node) })
}

// assign gives a Node without a podCIDR the first that no other has.
func (c *Cluster) assign(name string) {
	o := c.api.now.find(name)
	if o == nil || len(o.Spec.PodCIDRs) > 0 {
		return
	}
	n := o.DeepCopy()
	n.Spec.PodCIDRs = c.freeCIDRs()
	c.writeNode(n, o.author)
}

func podCIDRs(n int) []string {
	return []string{fmt.Sprintf("10.244.%d.0/24", n), fmt.Sprintf("fd00:244:0:%d::/64", n)}
}

func (c *Cluster) freeCIDRs() []string {
	for n := 1; ; n++ {
		cidrs := podCIDRs(n)
		if !slices.ContainsFunc(c.api.now.all, func(o object) bool {
			return slices.Equal(o.Spec.PodCIDRs, cidrs)
		}) {
			return cidrs
		}
	}
}

// patchNode applies a strategic merge patch of a Node's status.
func patchNode(n *kube.Object, body []byte) (*kube.Object, error) {
	var p struct {
		Metadata struct{ Annotations map[string]*string }
		Status   struct{ Conditions []kube.Condition }
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, err
	}
	out := n.DeepCopy()
	for key, text := range p.Metadata.Annotations {
		if text == nil {
			delete(out.Annotations, key)
		} else {
			out.Annotations[key] = *text
		}
	}
	for _, says := range p.Status.Conditions {
		out.Status.Conditions = append(slices.DeleteFunc(slices.Clone(out.Status.Conditions),
			func(c kube.Condition) bool { return c.Type == says.Type }), says)
	}
	return out, nil
}

func describeNodes(i *nodes) string {
	var b strings.Builder
	fmt.Fprintf(&b, "at %d:", i.version)
	for _, o := range i.all {
		fmt.Fprintf(&b, " %s=%s@%s/%s(%s)", o.Name, subnetsOf(o.Object).V4, o.Annotations[publicIP],
			o.ResourceVersion, o.UID)
		if o.Annotations[managed] != "true" {
			b.WriteString("-")
		}
	}
	return b.String()
}
