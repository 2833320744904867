package diagnose

// Relation is what two nodes, or one and all the others, say of each other. weft matrix sees it, and no
// single node does.
type Relation string

// The relations.
const (
	Alone     Relation = "alone"      // no peer answers this node
	Unseen    Relation = "unseen"     // the node at Path.Here does not know the other
	OneWay    Relation = "one-way"    // only one of two gets answers
	LargeLost Relation = "large-lost" // large packets are lost
	OffPort   Relation = "off-port"   // weft's rules kept datagrams off the overlay's port, and a peer is silent
)

// Between says what follows from a relation.
func Between(p Path, r Relation) Finding {
	if p.Here == "" {
		p.Here = "here"
	}
	l := &list{p: p}
	switch r {
	case Alone:
		l.here("own-fault", "this node's own link, firewall or settings", "a fault of this host",
			"weft doctor --all")
		l.here("each-of-them", "a fault of each of them", "not the same of each", "weft peers")
	case Unseen:
		l.here("record-unseen", "it does not see that node's record: its store is another, or behind",
			"the record is missing", "weft lease list")
		l.here("record-refused", "it refuses that node's record, as with another network config", "the reason",
			"weft status; weft peers")
	case OneWay:
		l.here("just-begun", "this has just begun or ended", "another answer", "sleep 10; weft matrix")
		l.there("peer-input", "a firewall drops one node's questions only", "a rule for INPUT that drops it",
			rules+"; iptables -S INPUT")
	case LargeLost:
		l.here("path-mtu", "a device on the way carries less than the underlay's link, and no ICMP message says so",
			"the MTU of the underlay layer", "weft ping %s", p.Peer)
	case OffPort:
		const watch = "tcpdump -c 9 -ni any udp port %d"
		l.here("other-link", "a silent peer's datagrams come by another link than "+p.Link,
			"a peer's address, In on another link", watch, p.UDPPort)
		l.here("pod-on-port", "a pod sends to the overlay's port", "a pod's address", watch, p.UDPPort)
	}
	return Finding{Causes: l.all}
}
