package hostrules

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
)

// This file asks what the host's firewalls would do with a packet that nobody has sent. Answers have three values: a rule
// that asks for what is not known here, such as a mark or a rate, may match or not, and then nothing is said.

// Hook is where a packet meets the rules.
type Hook uint32

// The hooks of packets that come in for this host, of those that are forwarded, and of this host's own; the kernel's numbers.
const (
	HookInput   Hook = 1
	HookForward Hook = 2
	HookOutput  Hook = 3
)

// String returns the hook's name in iptables.
func (h Hook) String() string { return hooks()[h] }

// Packet is one that a firewall is asked about.
type Packet struct {
	Hook     Hook
	In, Out  string // links; Out is "" at HookInput, and In at HookOutput
	Src, Dst netip.Addr
	// Protocol is UDP, TCP or IP in IP by its number. The last has no ports.
	Protocol         uint8
	SrcPort, DstPort uint16
	// Answer says that it belongs to a flow that passed in the other direction before; else it is the first of its flow.
	Answer bool
}

// The states of connection tracking, as nftables and iptables have them in a mask.
const stateEstablished, stateNew = 1 << 1, 1 << 3

// state is what connection tracking says of the packet.
func (p Packet) state() uint32 {
	if p.Answer {
		return stateEstablished
	}
	return stateNew
}

func (p Packet) ipv6() bool { return p.Dst.Is6() }

const protocolIPIP, protocolUDP = 4, 17

// Target says in words what the packet is addressed to at its host.
func (p Packet) Target() string {
	if p.Protocol == protocolIPIP {
		return "IP protocol 4"
	}
	return fmt.Sprintf("UDP port %d", p.DstPort)
}

// Plural is what such packets are called.
func (p Packet) Plural() string {
	if p.Protocol == protocolIPIP {
		return "packets"
	}
	return "datagrams"
}

// header is the packet's IP header without options, and what is behind it: ports, or another IP header.
func (p Packet) header() (network, transport []byte) {
	transport = make([]byte, 20)
	binary.BigEndian.PutUint16(transport, p.SrcPort)
	binary.BigEndian.PutUint16(transport[2:], p.DstPort)
	const syn = 2
	switch p.Protocol {
	case protocolUDP:
		transport = transport[:8]
		binary.BigEndian.PutUint16(transport[4:], 100)
	case protocolIPIP:
		transport = make([]byte, 20)
		transport[0], transport[8], transport[9] = 0x45, 64, protocolUDP
	default:
		transport[12], transport[13] = 5<<4, syn
	}
	if p.ipv6() {
		network = make([]byte, 40)
		network[0], network[6], network[7] = 6<<4, p.Protocol, 64
		src, dst := p.Src.As16(), p.Dst.As16()
		copy(network[8:], src[:])
		copy(network[24:], dst[:])
		return network, transport
	}
	network = make([]byte, 20)
	network[0], network[8], network[9] = 0x45, 64, p.Protocol
	src, dst := p.Src.As4(), p.Dst.As4()
	copy(network[12:], src[:])
	copy(network[16:], dst[:])
	return network, transport
}

// Barrier is a chain that drops a packet.
type Barrier struct {
	// Firewall is nftables, or iptables with its flavour; Table and Chain are where the packet is dropped.
	Firewall, Table, Chain string
	// Policy says that the chain's policy does it, since no rule accepts the packet; else a rule does.
	Policy bool
	// Owner is who manages the rules, as far as names tell: firewalld, ufw, docker, or "".
	Owner string
}

// String says which chain drops, in words.
func (b Barrier) String() string {
	by := "a rule drops"
	if b.Policy {
		by = "no rule accepts"
	}
	return fmt.Sprintf("in chain %s of table %s (%s) %s", b.Chain, b.Table, b.Firewall, by)
}

// Allow is the command that would let packets to a UDP port or of IP in IP in or out, or forwarded packets of the overlay's link pass.
func (b Barrier) Allow(p Packet) string {
	family, tool := "ip", "iptables"
	if p.ipv6() {
		family, tool = "ip6", "ip6tables"
	}
	legacy := ""
	if strings.Contains(b.Firewall, "legacy") {
		legacy = "-legacy"
	}
	if p.Hook == HookForward {
		link := p.In
		if !strings.HasPrefix(link, "flannel") {
			link = p.Out
		}
		switch {
		case b.Owner == "firewalld":
			return fmt.Sprintf("firewall-cmd --permanent --zone=trusted --add-interface=%s && firewall-cmd --reload", link)
		case b.Owner == "ufw":
			return fmt.Sprintf("ufw route allow in on %s; ufw route allow out on %s", link, link)
		case strings.HasPrefix(b.Firewall, "iptables"):
			return fmt.Sprintf("start weftd with --iptables-forward-rules, or %s%s -I FORWARD -i %s -j ACCEPT; %s%s -I FORWARD -o %s -j ACCEPT", tool, legacy, link, tool, legacy, link)
		}
		return fmt.Sprintf("nft insert rule %s %s iifname %s accept; the same with oifname", b.Table, b.Chain, link)
	}
	chain, words, match := p.Hook.String(), fmt.Sprintf("-p udp --dport %d", p.DstPort), fmt.Sprintf("udp dport %d", p.DstPort)
	if p.Protocol == protocolIPIP {
		words, match = "-p 4", "meta l4proto 4"
	}
	switch {
	case b.Owner == "firewalld" && p.Hook == HookInput && p.Protocol == protocolIPIP:
		return "firewall-cmd --permanent --add-protocol=4 && firewall-cmd --reload"
	case b.Owner == "ufw" && p.Protocol == protocolIPIP: // whose command knows few protocols
		return fmt.Sprintf("add -A ufw-before-%s -p 4 -j ACCEPT to /etc/ufw/before.rules, before its COMMIT, and then ufw reload", strings.ToLower(chain))
	case b.Owner == "ufw" && p.Hook == HookOutput:
		return fmt.Sprintf("ufw allow out %d/udp", p.DstPort)
	case b.Owner == "firewalld" && p.Hook == HookInput:
		return fmt.Sprintf("firewall-cmd --permanent --add-port=%d/udp && firewall-cmd --reload", p.DstPort)
	case b.Owner == "ufw":
		return fmt.Sprintf("ufw allow %d/udp", p.DstPort)
	case strings.HasPrefix(b.Firewall, "iptables"):
		return fmt.Sprintf("%s%s -I %s %s -j ACCEPT", tool, legacy, chain, words)
	}
	return fmt.Sprintf("nft insert rule %s %s %s accept (table family inet or %s)", b.Table, b.Chain, match, family)
}

// ownerOf says who manages a chain.
func ownerOf(table string, chains []string) string {
	if table == "firewalld" {
		return "firewalld"
	}
	for _, c := range chains {
		switch {
		case strings.HasPrefix(c, "ufw-"), strings.HasPrefix(c, "ufw6-"):
			return "ufw"
		case c == "INPUT_ZONES", c == "FORWARD_IN_ZONES":
			return "firewalld"
		}
	}
	return ""
}

// truth is whether a rule matches.
type truth uint8

const (
	no truth = iota
	maybe
	yes
)

func (t truth) and(u truth) truth { return min(t, u) }

func truthOf(b bool) truth {
	if b {
		return yes
	}
	return no
}

func (t truth) xor(invert bool) truth {
	if invert {
		return yes - t
	}
	return t
}

// fate is what becomes of a packet in a chain.
type fate uint8

const (
	fateEnds fate = iota // the chain ends, or returns
	fateAccepted
	fateDropped
	fateOpen // it cannot be told
)

// ruling is one rule, as far as the packet goes: whether it matches, and what it does then.
type ruling struct {
	match truth
	does  doing
	to    string // of a jump or goto
}

type doing uint8

const (
	doesNothing doing = iota
	doesAccept
	doesDrop
	doesReturn
	doesJump
	doesGoto
)

// mostDeep bounds jumps, as the kernel does, and mostChains how many chains are read for one packet.
const mostDeep, mostChains = 16, 400

// walker follows a packet through the chains of one table.
type walker struct {
	// rulings lists the rules of a chain.
	rulings func(chain string) ([]ruling, error)
	read    int
	// at is the chain whose rule dropped the packet.
	at string
}

// walk says what becomes of the packet in a chain.
func (w *walker) walk(chain string, depth int) (fate, error) {
	if w.read++; depth > mostDeep || w.read > mostChains {
		return fateOpen, nil
	}
	rules, err := w.rulings(chain)
	if err != nil {
		return fateOpen, err
	}
	open := false // a rule before may have ended the packet's way here
	for _, r := range rules {
		f := fateEnds
		switch {
		case r.match == no:
			continue
		case r.does == doesAccept:
			f = fateAccepted
		case r.does == doesDrop:
			if f = fateDropped; r.match == yes && !open {
				w.at = chain
			}
		case r.does == doesReturn:
			if r.match == yes {
				return ended(fateEnds, open), nil
			}
			open = true
			continue
		case r.does == doesJump, r.does == doesGoto:
			if f, err = w.walk(r.to, depth+1); err != nil {
				return fateOpen, err
			}
			if f == fateEnds && r.does == doesGoto {
				if r.match == yes {
					return ended(fateEnds, open), nil
				}
				open = true
			}
		}
		switch {
		case f == fateEnds:
		case f == fateOpen:
			return fateOpen, nil
		case r.match == yes:
			return ended(f, open), nil
		case f == fateAccepted:
			return fateOpen, nil // what would drop it later may not be asked
		}
	}
	return ended(fateEnds, open), nil
}

// ended is a fate that is open if a rule before may have led the packet elsewhere, unless both ways end alike.
func ended(f fate, open bool) fate {
	if open && f == fateDropped {
		return fateOpen
	}
	return f
}
