package differ

import (
	"encoding/binary"
	"net/netip"

	"weft/encap"
)

// flannel is a model of the proxy of flannel's udp backend, from what is documented of it: a bare IPv4 packet in a datagram, one decrement of the
// TTL at either end, no look at sources, no look at the version.

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

// did is what a proxy does with a packet: it sends it, to a node or to its host, answers with an ICMP error, or drops it.
type did struct {
	sent []byte   // a packet, or the first of several or of the fragments of one; nil: none
	more [][]byte // the others
	to   byte     // the number of the node that gets them
	ecn  byte     // of the outer header
	icmp []byte   // to the host
}

// flannelOut is what flannel does with a packet from its host. It changes p.
func flannelOut(p []byte) did {
	if len(p) < 20 {
		return did{}
	}
	var to byte
	for _, n := range nodes { // whatever the version says, the destination is where IPv4 has it
		if p[16] == 10 && p[17] == 1 && p[18] == n.number {
			to = n.number
			break
		}
	}
	if to == 0 {
		return did{icmp: flannelNetUnreachable(p)}
	}
	if p = flannelTTL(p); p == nil {
		return did{}
	}
	return did{sent: p, to: to}
}

// flannelIn is what flannel does with a datagram. It changes p.
func flannelIn(p []byte) did {
	p = p[:min(len(p), 1472)] // its buffer
	if len(p) < 20 {
		return did{}
	}
	if p = flannelTTL(p); p == nil {
		return did{}
	}
	return did{sent: p}
}

// flannelTTL takes one from the TTL in place, where 0 becomes 255, and patches the checksum. nil: none is left.
func flannelTTL(p []byte) []byte {
	p[8]--
	if p[8] == 0 {
		return nil
	}
	if p[8] == 255 {
		return p // what it does to the checksum then is not documented
	}
	// RFC 1624, equation 3.
	check := binary.BigEndian.Uint16(p[10:])
	was := uint16(p[8]+1)<<8 | uint16(p[9])
	binary.BigEndian.PutUint16(p[10:], ^fold(uint64(^check)+uint64(^was)+uint64(was-0x100)))
	return p
}

// flannelNetUnreachable is its answer about p; nil for ICMP, later fragments and headers of 60 bytes.
func flannelNetUnreachable(p []byte) []byte {
	n := int(p[0]&15) * 4
	if p[9] == encap.ProtoICMP || binary.BigEndian.Uint16(p[6:])&0x1fff != 0 || n >= 60 {
		return nil
	}
	return []byte{3, 0} // its type and code: the rest is not compared
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

