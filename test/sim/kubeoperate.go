package sim

import (
	"strings"
	"time"

	"weft/lease/kube"
)

// operateNodes does to the API server what an operator, a controller or a disaster does.
func (c *Cluster) operateNodes(o Op, m *machine) {
	a := c.api
	own := a.now.find(m.node)
	switch o.Do {
	case Config: // the ConfigMap is another one, and weftd is restarted everywhere
		a.wanted = o.N % (goodConfigs - 1)
		a.config = a.wanted
		for _, m := range c.machines {
			c.at(c.after(0, 10*time.Second), func() {
				if m.process != nil {
					c.stop(m)
					c.start(m)
				}
			})
		}
	case Compact:
		c.compactNodes()
		c.breakWatches()
	case Backup:
		a.backup = a.now
	case Restore:
		c.goBack(a.backup)
		c.at(c.now+o.For, c.registerAll)
	case Wipe:
		c.goBack(&nodes{version: 1})
		c.at(c.now+o.For, c.registerAll)
	case Delete: // and made again when its kubelet is started again
		c.dropNode(m.node)
		c.at(c.now+o.For, func() { c.register(m) })
	case Conflict:
		a.conflicts = 1 + o.N
	case Touch: // others write what is nothing to us, which only counts
		for range 1 + o.N {
			if own := a.now.find(m.node); own != nil {
				c.writeNode(own.DeepCopy(), own.author)
			}
		}
	case Recidr:
		if own == nil {
			return
		}
		n := own.DeepCopy()
		if other := a.now.find(c.machines[o.Other].node); o.N%2 == 1 && other != nil {
			n.Spec.PodCIDRs = other.Spec.PodCIDRs
		} else {
			n.Spec.PodCIDRs = c.freeCIDRs()
		}
		c.writeNode(n, own.author)
	case Scribble:
		if own != nil {
			c.scribble(own, o.N)
		}
	case Stranger:
		n := &kube.Object{}
		n.Name, n.Spec.PodCIDRs = "stranger-"+string(rune('a'+o.N%8)), podCIDRs(1+o.N)
		if a.now.find(n.Name) == nil {
			n.Annotations = map[string]string{}
			asFlannel(n, strangerAddr(o.N).String())
			c.writeNode(n, nobody)
		}
	default: // is a machine's
	}
}

// registerAll has the kubelets of all machines that run make their Nodes.
func (c *Cluster) registerAll() {
	for _, m := range c.machines {
		if m.process != nil {
			c.register(m)
		}
	}
}

// asFlannel has a Node say what flannel writes.
func asFlannel(n *kube.Object, addr string) {
	n.Annotations[managed], n.Annotations[publicIP] = "true", addr
	n.Annotations[kube.DefaultPrefix+"/backend-type"], n.Annotations[kube.DefaultPrefix+"/backend-data"] = "udp",
		"null"
}

// scribble writes over what a Node says.
func (c *Cluster) scribble(own *object, how int) {
	n := own.DeepCopy()
	switch how % 6 {
	case 0:
		n.Annotations[publicIP] = "nonsense"
	case 1: // as a flannel at another address
		asFlannel(n, strangerAddr(how).String())
	case 2:
		for key := range n.Annotations {
			if strings.HasPrefix(key, kube.DefaultPrefix) {
				delete(n.Annotations, key)
			}
		}
	case 3: // another controller says of the network what it likes
		n.Status.Conditions = []kube.Condition{{Type: "NetworkUnavailable", Status: "True",
			Reason: "NoRouteCreated"}}
	case 4:
		delete(n.Annotations, managed)
	case 5: // another machine's address
		n.Annotations[publicIP] = c.machines[how%len(c.machines)].addr.String()
	}
	c.writeNode(n, nobody)
}
