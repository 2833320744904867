package routing

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weft/routing/internal/kernel"
)

// SetPods says which addresses have pods whose interface is a port of the data plane. It replaces what was
// said before, and does not wait for the kernel. Until it is called for the first time, an earlier process'
// routes to pods stay.
//
// By itself the host reaches such a pod by the route to all of the overlay. But on a node that has a bridge
// for pods too, that bridge has the node's whole subnet: the host would look for the pod there, and so would
// the bridge's pods. Therefore each pod has a route of its own beside such a bridge, and the host answers for
// it there, with ARP and neighbour discovery (kernel.Bridged).
func (c *Node) SetPods(addrs []netip.Addr) {
	l := unique(slices.Clone(addrs))
	if was := c.pods.Swap(&l); was == nil || !slices.Equal(*was, l) {
		c.nudge(kernel.ChangedObjects)
	}
}

// podRoutes are the routes to pods that are wanted on the TUN.
func (c *Node) podRoutes(tun string) (kernel.State, error) {
	own := subnets(c.set.Own.Subnets)
	told := c.pods.Load()
	if told == nil {
		return c.formerPodRoutes(tun, own)
	}
	if len(*told) == 0 && c.proxied != nil {
		c.bridged = nil
		return kernel.State{}, nil // else an earlier process may have left entries
	}
	bridged, err := c.k.Bridged(own)
	if err != nil { // what is there stays
		former, more := c.formerPodRoutes(tun, own)
		return former, errors.Join(fmt.Errorf("find the bridge of pods: %w", err), more)
	}
	c.bridged = bridged
	var s kernel.State
	for _, a := range *told {
		if slices.ContainsFunc(c.bridged, func(b kernel.Bridged) bool { return b.Prefix.Contains(a) }) {
			s.Routes = append(s.Routes, podRoute(a, tun))
		}
	}
	return s, nil
}

// formerPodRoutes are those that an earlier process made, while it is not known which pods there are.
func (c *Node) formerPodRoutes(tun string, own []netip.Prefix) (kernel.State, error) {
	have, err := c.k.State(kernel.Place{Devices: []string{tun}})
	if err != nil {
		return kernel.State{}, err
	}
	var s kernel.State
	for _, x := range have.Routes {
		if x.Dst.IsSingleIP() && x == podRoute(x.Dst.Addr(), tun) &&
			slices.ContainsFunc(own, func(p netip.Prefix) bool { return liesIn(x.Dst, p) }) {
			s.Routes = append(s.Routes, x)
		}
	}
	return s, nil
}

func podRoute(a netip.Addr, tun string) kernel.Route {
	return tunRoute(netip.PrefixFrom(a, a.BitLen()), tun, 0)
}

// answerForPods has the host answer on bridges for the pods that are not there. An entry for an address of
// the node's subnet is taken to be ours: nobody else gives those addresses away. A failure concerns the
// bridge's pods alone, and is a note.
func (c *Node) answerForPods(r *round) {
	if c.plane == nil {
		return
	}
	pods := c.pods.Load()
	if pods == nil {
		return
	}
	bridges := map[int]string{}
	six := map[int]bool{}
	for _, b := range c.bridged {
		bridges[b.Link.Index] = b.Link.Name
		six[b.Link.Index] = six[b.Link.Index] || b.Prefix.Addr().Is6() &&
			slices.ContainsFunc(*pods, b.Prefix.Contains)
	}
	for index := range c.proxied { // those from which the last pod is gone, too
		if bridges[index] == "" {
			bridges[index] = fmt.Sprint("link ", index)
		}
	}
	own := subnets(c.set.Own.Subnets)
	for index, name := range bridges {
		have, err := c.k.Proxies(index)
		if err != nil {
			r.note(fmt.Sprintf("pods on %s may not reach those that are attached directly: %v", name, err))
			continue
		}
		wanted := func(a netip.Addr) bool {
			return slices.Contains(*pods, a) && slices.ContainsFunc(c.bridged, func(b kernel.Bridged) bool {
				return b.Link.Index == index && b.Prefix.Contains(a)
			})
		}
		for _, a := range *pods {
			if !wanted(a) || slices.Contains(have, a) {
				continue
			}
			if err := c.k.AddProxy(index, a); err != nil {
				r.note(fmt.Sprintf("pods on %s do not reach %s, which is attached directly: ip neigh add proxy: %v",
					name, a, err))
				break // the others fail likewise
			}
		}
		for _, a := range have {
			if !wanted(a) && slices.ContainsFunc(own, func(p netip.Prefix) bool {
				return p.IsValid() && p.Contains(a)
			}) {
				c.warnOnce(c.k.DelProxy(index, a))
			}
		}
		if err := c.k.AnswerForOthers(name, six[index]); six[index] && err != nil {
			r.note(fmt.Sprintf("pods on %s do not reach those that are attached directly by IPv6: %v; on the host: "+
				"sysctl -w net.ipv6.conf.%s.proxy_ndp=1", name, err, strings.ReplaceAll(name, ".", "/")))
		}
	}
	c.proxied = map[int]bool{}
	for _, b := range c.bridged {
		c.proxied[b.Link.Index] = true
	}
}
