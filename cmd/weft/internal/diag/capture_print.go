package diag

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
	"weft/encap"
)

// capturedPacket is a packet as weft capture --json prints it, one to a line.
type capturedPacket struct {
	Time time.Time `json:"time"`
	// Direction is out or in.
	Direction       string     `json:"direction"`
	Source          netip.Addr `json:"source,omitzero"`
	Destination     netip.Addr `json:"destination,omitzero"`
	Protocol        string     `json:"protocol,omitempty"`
	SourcePort      uint16     `json:"sourcePort,omitempty"`
	DestinationPort uint16     `json:"destinationPort,omitempty"`
	Length          int        `json:"length"`
	Peer            string     `json:"peer,omitempty"`
	PeerAddress     netip.Addr `json:"peerAddress,omitzero"`
	Dropped         string     `json:"dropped,omitempty"`
	Admit           string     `json:"admit,omitempty"`
	Segments        int        `json:"segments,omitempty"`
	SegmentSize     int        `json:"segmentSize,omitempty"`

	detail string // of the protocol, for people
}

// packetOf reads what a packet's headers say.
func packetOf(p *control.CapturedPacket) capturedPacket {
	c := capturedPacket{
		Time: p.Time, Direction: "in", Length: p.Length, Peer: p.Peer, PeerAddress: p.Address,
		Dropped: p.Dropped, Admit: p.Admit, Segments: p.Segments, SegmentSize: p.SegmentSize,
	}
	if p.Outbound {
		c.Direction = "out"
	}
	whole := p.Data
	if len(whole) < p.Length { // lengths in the header are of the packet before it was cut
		whole = append(whole[:len(whole):len(whole)], make([]byte, p.Length-len(whole))...)
	}
	in, err := encap.ParseInner(whole)
	if err != nil {
		c.Protocol, c.detail = "malformed", err.Error()
		return c
	}
	c.Source, c.Destination = in.Src, in.Dst
	c.Protocol = protocolName(in.Proto)
	var l4 []byte
	if in.L4 > 0 && in.L4 <= len(p.Data) {
		l4 = p.Data[in.L4:]
	}
	switch {
	case in.FragOffset > 0:
		c.detail = fmt.Sprintf("fragment at %d", in.FragOffset)
	case len(l4) < 4:
	case in.Proto == encap.ProtoTCP, in.Proto == encap.ProtoUDP:
		c.SourcePort, c.DestinationPort = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
		if in.Proto == encap.ProtoTCP && len(l4) > 13 {
			c.detail = tcpFlags(l4[13])
		}
	case in.Proto == encap.ProtoICMP, in.Proto == encap.ProtoICMPv6:
		c.detail = icmpName(in.Proto, l4[0], l4[1])
	}
	return c
}

func protocolName(p uint8) string {
	switch p {
	case encap.ProtoTCP:
		return "tcp"
	case encap.ProtoUDP:
		return "udp"
	case encap.ProtoICMP:
		return "icmp"
	case encap.ProtoICMPv6:
		return "icmp6"
	}
	return fmt.Sprintf("proto %d", p)
}

// tcpFlags are the flags as tcpdump prints them.
func tcpFlags(b byte) string {
	s := ""
	for i, name := range []string{"F", "S", "R", "P", ".", "U", "E", "W"} {
		if b&(1<<i) != 0 {
			s += name
		}
	}
	return "[" + s + "]"
}

func icmpName(proto, kind, code uint8) string {
	names := map[uint8]string{0: "echo reply", 3: "unreachable", 8: "echo request", 11: "time exceeded"}
	if proto == encap.ProtoICMPv6 {
		names = map[uint8]string{1: "unreachable", 2: "packet too big", 3: "time exceeded", 128: "echo request",
			129: "echo reply", 135: "neighbor solicitation", 136: "neighbor advertisement"}
	}
	if proto == encap.ProtoICMP && kind == 3 && code == 4 {
		return "fragmentation needed"
	}
	if n := names[kind]; n != "" {
		return n
	}
	return fmt.Sprintf("type %d code %d", kind, code)
}

// line is the packet for people.
func (c capturedPacket) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %-3s ", c.Time.Local().Format("15:04:05.000000"), c.Direction)
	end := func(a netip.Addr, port uint16) string {
		switch {
		case !a.IsValid():
			return "?"
		case port > 0:
			return netip.AddrPortFrom(a, port).String()
		}
		return a.String()
	}
	fmt.Fprintf(&b, "%s > %s %s", end(c.Source, c.SourcePort), end(c.Destination, c.DestinationPort), c.Protocol)
	if c.detail != "" {
		b.WriteString(" " + c.detail)
	}
	fmt.Fprintf(&b, ", %d bytes", c.Length)
	if c.Segments > 0 {
		fmt.Fprintf(&b, " (%d packets of up to %d)", c.Segments, c.SegmentSize)
	}
	if c.PeerAddress.IsValid() {
		way := "from"
		if c.Direction == "out" {
			way = "to"
		}
		fmt.Fprintf(&b, ", %s %s", way, strings.TrimSpace(cli.Clean(c.Peer)+" ("+c.PeerAddress.String()+")"))
	}
	if c.Dropped != "" {
		b.WriteString(", DROPPED " + cli.Clean(c.Dropped))
		if c.Admit != "" {
			b.WriteString(": would be admitted by " + cli.Clean(c.Admit))
		}
	}
	return b.String()
}

// eachPacket shows packets, and not what else a stream says.
func eachPacket(show func(capturedPacket) error) func(control.Captured) error {
	return func(c control.Captured) error {
		if c.Packet == nil {
			return nil
		}
		return show(packetOf(c.Packet))
	}
}
