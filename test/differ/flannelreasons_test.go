package differ

import "net/netip"

// proxyPort is the port of all nodes in format ip.
const proxyPort = 8285

// A node of the overlay. Its number is the third byte of its subnets, and the last of its outer address.
type node struct {
	number byte
	weft   bool // takes inner IPv6, and brings outer ECN back in
	limit  int  // the largest inner packet that it is sent, in bytes
}

// nodes are the peers of the node under test, which is number 1.
var nodes = [...]node{{2, true, 1472}, {3, false, 1472}, {4, true, 1300}}

func (n node) outer() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, n.number}), proxyPort)
}

// did is what becomes of a packet: it is sent to a node or to the host, answered with an ICMP error, or dropped.
type did struct {
	sent []byte   // a packet, or the first of several or of the fragments of one; nil: none
	more [][]byte // the others
	to   byte     // the number of the node that gets them
	ecn  byte     // of the outer header
	icmp []byte   // to the host
}

// flannelReason says what weft does otherwise than flannel.
type flannelReason string

const (
	asFlannel      flannelReason = "as flannel, but for the TTL"
	noIP           flannelReason = "unreadable"
	trailing       flannelReason = "bytes behind the packet"
	ownWay         flannelReason = "source is destination"
	forgedSource   flannelReason = "forged source"
	noGroups       flannelReason = "groups and martians"
	noRoute        flannelReason = "no route"
	ipv6ToFlannel  flannelReason = "IPv6 to flannel"
	ipv6ToWeft     flannelReason = "IPv6"
	tooBig         flannelReason = "too big"
	outerECN       flannelReason = "outer ECN"
	unknownSource  flannelReason = "outer source unknown"
	innerSource    flannelReason = "inner source not the sender's"
	notOurs        flannelReason = "destination not ours"
	tunnelInTunnel flannelReason = "tunnel in the tunnel"
	ttlZero        flannelReason = "TTL 0"
	completes      flannelReason = "checksum completed"
	severalPackets flannelReason = "several packets"
	longDatagram   flannelReason = "long datagram"
)
