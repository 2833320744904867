package pcapfilter

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// maxWords bounds a filter, and with it the time that a packet may take and how deep brackets are.
const maxWords = 256

// node is a part of a parsed filter.
type node interface{}

type (
	both   struct{ a, b node } // and
	either struct{ a, b node } // or
	not    struct{ of node }
	// proto matches packets of an IP version (0: either) and a protocol (0: any).
	proto struct {
		version  uint8
		protocol int // -1 for any
	}
	// network matches addresses. src and dst: which of them; if both, one suffices unless all.
	network struct {
		prefix        netip.Prefix
		src, dst, all bool
	}
	// ports matches transport ports of a protocol (-1: TCP, UDP and SCTP) in a version (0: either).
	ports struct {
		proto
		from, to      uint16
		src, dst, all bool
	}
	// size matches lengths of packets in bytes.
	size struct {
		atMost bool
		n      uint32
	}
)

type parser struct {
	words []token
	// last are the words before an address or a number, for one that has none.
	last qualifiers
}

// qualifiers are what stands before an address or a number.
type qualifiers struct {
	proto
	word          string // ip, tcp and so on; "" for none
	src, dst, all bool
	kind          string // host, net, port, portrange, proto, less, greater; "" for none yet
}

// parse reads a whole filter.
func parse(s string) (node, error) {
	words, err := lex(s)
	if err != nil {
		return nil, err
	}
	if len(words) > maxWords {
		return nil, fmt.Errorf("filter: %d words, and no more than %d are taken", len(words), maxWords)
	}
	p := &parser{words: words, last: qualifiers{proto: proto{0, -1}}}
	n, err := p.filter()
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t != "" {
		return nil, p.fault("%q is not expected here", t)
	}
	return n, nil
}

func (p *parser) peek() string {
	if len(p.words) == 0 {
		return ""
	}
	return strings.ToLower(p.words[0].text)
}

func (p *parser) next() string {
	t := p.peek()
	if t != "" {
		p.words = p.words[1:]
	}
	return t
}

// fault is an error about the word that comes next.
func (p *parser) fault(format string, a ...any) error {
	where := "at its end"
	if len(p.words) > 0 {
		where = fmt.Sprintf("at byte %d", p.words[0].at)
	}
	return fmt.Errorf("filter, %s: %s", where, fmt.Sprintf(format, a...))
}

// filter reads terms that are joined by and and or, which bind alike.
func (p *parser) filter() (node, error) {
	n, err := p.term()
	for err == nil {
		word := p.peek()
		var m node
		switch word {
		case "and", "&&":
			p.next()
			m, err = p.term()
			n = both{n, m}
		case "or", "||":
			p.next()
			m, err = p.term()
			n = either{n, m}
		default:
			return n, nil
		}
	}
	return nil, err
}

func (p *parser) term() (node, error) {
	switch p.peek() {
	case "":
		return nil, p.fault("a host, net, port or protocol is missing")
	case "not", "!":
		p.next()
		n, err := p.term()
		return not{n}, err
	case "(":
		p.next()
		n, err := p.filter()
		if err != nil {
			return nil, err
		}
		if p.peek() != ")" {
			return nil, p.fault("a closing bracket is missing")
		}
		p.next()
		return n, nil
	}
	return p.primitive()
}

// known are protocols, by their words.
func known(word string) (proto, bool) {
	switch word {
	case "ip":
		return proto{4, -1}, true
	case "ip6":
		return proto{6, -1}, true
	case "tcp":
		return proto{0, 6}, true
	case "udp":
		return proto{0, 17}, true
	case "sctp":
		return proto{0, 132}, true
	case "icmp":
		return proto{4, 1}, true
	case "icmp6":
		return proto{6, 58}, true
	}
	return proto{}, false
}

// primitive reads one test.
func (p *parser) primitive() (node, error) {
	q := qualifiers{proto: proto{0, -1}}
	if of, ok := known(p.peek()); ok {
		q.proto, q.word = of, p.next()
	}
	p.direction(&q)
	switch p.peek() {
	case "host", "net", "port", "portrange", "proto", "less", "greater":
		q.kind = p.next()
	case "", ")", "and", "or", "&&", "||":
		if q.word != "" && !q.src && !q.dst {
			return q.proto, nil
		}
		return nil, p.fault("after %s a host, net or port is missing", q.said())
	default:
		if q.word == "" && !q.src && !q.dst {
			q = p.last
		}
		if q.kind == "" {
			q.kind = "host" // as pcap has it
			if strings.Contains(p.peek(), "/") {
				q.kind = "net"
			}
			if _, also := known(p.peek()); also {
				return nil, p.fault("%q is not expected here: and or or is missing", p.peek())
			}
			if _, _, err := address(p.peek()); err != nil {
				return nil, p.fault("%q is not known: it is no address, and none of host, net, port, portrange, proto, "+
					"less, greater, src, dst, ip, ip6, tcp, udp, sctp, icmp, icmp6, and, or, not", p.peek())
			}
		}
	}
	return p.value(q)
}

// direction reads src, dst, src or dst, src and dst.
func (p *parser) direction(q *qualifiers) {
	first := p.peek()
	if first != "src" && first != "dst" {
		return
	}
	p.next()
	q.src, q.dst = first == "src", first == "dst"
	if len(p.words) < 2 {
		return
	}
	join, second := p.peek(), strings.ToLower(p.words[1].text)
	if (join == "or" || join == "and") && (second == "src" || second == "dst") && second != first {
		p.next()
		p.next()
		q.src, q.dst, q.all = true, true, join == "and"
	}
}

// said are the words of q, for an error.
func (q qualifiers) said() string {
	var l []string
	if q.word != "" {
		l = append(l, q.word)
	}
	if q.src {
		l = append(l, "src")
	}
	if q.dst {
		l = append(l, "dst")
	}
	return strconv.Quote(strings.Join(l, " "))
}

// address reads an address, or a network in CIDR form.
func address(s string) (netip.Prefix, bool, error) {
	if strings.Contains(s, "/") {
		n, err := netip.ParsePrefix(s)
		return n, true, err
	}
	a, err := netip.ParseAddr(s)
	if err == nil && a.Zone() != "" {
		err = fmt.Errorf("%q has a zone, which no packet has", s)
	}
	if err != nil {
		return netip.Prefix{}, false, err
	}
	a = a.Unmap()
	return netip.PrefixFrom(a, a.BitLen()), false, nil
}

// value reads what q asks for.
func (p *parser) value(q qualifiers) (node, error) {
	word := p.peek()
	if word == "" || word == ")" || word == "(" {
		return nil, p.fault("after %q a value is missing", q.kind)
	}
	var n node
	var err error
	switch q.kind {
	case "host", "net":
		n, err = p.network(q, word)
	case "port", "portrange":
		n, err = p.ports(q, word)
	case "proto":
		n, err = p.proto(q, word)
	default:
		v, bad := strconv.ParseUint(word, 10, 32)
		if bad != nil || q.word != "" || q.src || q.dst {
			return nil, p.fault("%s %q: a number of bytes belongs there, and no word before %s", q.kind, word, q.kind)
		}
		n = size{q.kind == "less", uint32(v)}
	}
	if err != nil {
		return nil, err
	}
	p.last = q
	p.next()
	return n, nil
}

func (p *parser) network(q qualifiers, word string) (node, error) {
	prefix, cidr, err := address(word)
	switch {
	case err != nil:
		return nil, p.fault("%s %q: an IP address%s belongs there (names are not looked up)", q.kind, word,
			map[bool]string{true: " with its length, as in 10.1.0.0/16,"}[q.kind == "net"])
	case q.kind == "host" && cidr:
		return nil, p.fault("host %q is a network: write net %s", word, word)
	case prefix != prefix.Masked():
		return nil, p.fault("net %q has bits beyond its length: it would be %v", word, prefix.Masked())
	case q.protocol >= 0:
		return nil, p.fault("%q cannot stand before %s: write %s and %s %s", q.word, q.kind, q.word, q.kind, word)
	case q.version == 4 && prefix.Addr().Is6(), q.version == 6 && prefix.Addr().Is4():
		return nil, p.fault("%s %q is of the other IP version than %s", q.kind, word, q.word)
	}
	n := network{prefix: prefix, src: q.src, dst: q.dst, all: q.all}
	if !n.src && !n.dst {
		n.src, n.dst = true, true
	}
	return n, nil
}

func (p *parser) ports(q qualifiers, word string) (node, error) {
	from, to, ranged := strings.Cut(word, "-")
	if !ranged {
		to = from
	}
	a, err := strconv.ParseUint(from, 10, 16)
	b, err2 := strconv.ParseUint(to, 10, 16)
	if err != nil || err2 != nil || ranged && q.kind == "port" {
		return nil, p.fault("%s %q: a number from 0 to 65535%s belongs there (names of services are not looked up)",
			q.kind, word, map[bool]string{true: ", or two as in 8000-8080,"}[q.kind == "portrange"])
	}
	if q.protocol == 1 || q.protocol == 58 {
		return nil, p.fault("%s has no ports", q.word)
	}
	n := ports{proto: q.proto, from: uint16(min(a, b)), to: uint16(max(a, b)), src: q.src, dst: q.dst,
		all: q.all}
	if !n.src && !n.dst {
		n.src, n.dst = true, true
	}
	return n, nil
}

func (p *parser) proto(q qualifiers, word string) (node, error) {
	word = strings.TrimPrefix(word, `\`) // pcap asks for it before a word
	v, err := strconv.ParseUint(word, 10, 8)
	number := int(v)
	if named, ok := known(word); ok && named.protocol >= 0 {
		number, err = named.protocol, nil
	}
	if err != nil || q.protocol >= 0 || q.src || q.dst {
		return nil, p.fault("proto %q: a number from 0 to 255, or one of tcp, udp, sctp, icmp, icmp6 belongs "+
			"there, and only ip or ip6 before proto", word)
	}
	return proto{q.version, number}, nil
}
