package pcapfilter

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/bpf"
)

// Filter says of packets whether they match. It does not change, and is safe for concurrent use.
type Filter struct {
	text    string
	root    node
	program []bpf.Instruction
	vm      *bpf.VM
}

// whole is what a program returns for a packet that matches: as many bytes as there are.
const whole = 1 << 18

// maxProgram is how many instructions the kernel takes (BPF_MAXINSNS).
const maxProgram = 4096

// Compile reads a filter. "" matches everything. The error names the word that is not understood.
func Compile(text string) (*Filter, error) {
	f := &Filter{text: text}
	c := &compiler{}
	if words, err := lex(text); err != nil || len(words) > 0 {
		if f.root, err = parse(text); err != nil {
			return nil, err
		}
		yes, no := c.label(), c.label()
		c.node(f.root, yes, no)
		c.place(no)
		c.emit(bpf.RetConstant{Val: 0})
		c.place(yes)
	}
	c.emit(bpf.RetConstant{Val: whole})
	if f.program = c.resolve(); len(f.program) > maxProgram {
		return nil, fmt.Errorf("filter: it makes %d instructions, and the kernel takes %d: write a shorter one",
			len(f.program), maxProgram)
	}
	vm, err := bpf.NewVM(f.program)
	if err != nil {
		return nil, fmt.Errorf("filter %q: %w", text, err)
	}
	f.vm = vm
	return f, nil
}

// Match reports whether a packet, which begins with its IP header, matches. It does not allocate.
func (f *Filter) Match(packet []byte) bool {
	if f.root == nil {
		return true
	}
	n, err := f.vm.Run(packet)
	return err == nil && n > 0
}

// Program is the filter for a socket whose packets begin with the IP header.
func (f *Filter) Program() ([]bpf.RawInstruction, error) {
	raw, err := bpf.Assemble(f.program)
	if err != nil {
		return nil, fmt.Errorf("filter %q: %w", f.text, err)
	}
	return raw, nil
}

// compiler emits instructions whose jumps go forward to labels.
type compiler struct {
	code   []bpf.Instruction
	jumps  map[int]int // by instruction: the label that its bpf.Jump goes to
	labels []int       // the instruction at each label
}

func (c *compiler) emit(in ...bpf.Instruction) { c.code = append(c.code, in...) }

func (c *compiler) label() int {
	c.labels = append(c.labels, -1)
	return len(c.labels) - 1
}

func (c *compiler) place(label int) { c.labels[label] = len(c.code) }

// jump goes to a label. An unconditional jump reaches everywhere; a conditional one only 255 instructions.
func (c *compiler) jump(label int) {
	if c.jumps == nil {
		c.jumps = map[int]int{}
	}
	c.jumps[len(c.code)] = label
	c.emit(bpf.Jump{})
}

// test compares what was loaded with v, and goes to yes or to no.
func (c *compiler) test(cond bpf.JumpTest, v uint32, yes, no int) {
	c.emit(bpf.JumpIf{Cond: cond, Val: v, SkipFalse: 1})
	c.jump(yes)
	c.jump(no)
}

func (c *compiler) resolve() []bpf.Instruction {
	for at, label := range c.jumps {
		c.code[at] = bpf.Jump{Skip: uint32(c.labels[label] - at - 1)}
	}
	return c.code
}

// node emits the code that goes to yes if n matches, else to no.
func (c *compiler) node(n node, yes, no int) {
	switch n := n.(type) {
	case both:
		second := c.label()
		c.node(n.a, second, no)
		c.place(second)
		c.node(n.b, yes, no)
	case either:
		second := c.label()
		c.node(n.a, yes, second)
		c.place(second)
		c.node(n.b, yes, no)
	case not:
		c.node(n.of, no, yes)
	case proto:
		c.proto(n, yes, no)
	case network:
		c.network(n, yes, no)
	case ports:
		c.ports(n, yes, no)
	case size:
		c.emit(bpf.LoadExtension{Num: bpf.ExtLen})
		if n.atMost {
			c.test(bpf.JumpLessOrEqual, n.n, yes, no)
		} else {
			c.test(bpf.JumpGreaterOrEqual, n.n, yes, no)
		}
	}
}

// version loads the IP version.
func (c *compiler) version() {
	c.emit(bpf.LoadAbsolute{Off: 0, Size: 1}, bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4})
}

func (c *compiler) proto(n proto, yes, no int) {
	four, six, not4 := c.label(), c.label(), c.label()
	c.version()
	if n.version != 6 {
		c.test(bpf.JumpEqual, 4, four, not4)
	} else {
		c.jump(not4)
	}
	c.place(not4)
	if n.version != 4 {
		c.test(bpf.JumpEqual, 6, six, no)
	} else {
		c.jump(no)
	}
	c.place(four)
	c.protocol(9, n.protocol, yes, no)
	c.place(six)
	if n.protocol < 0 {
		c.jump(yes)
		return
	}
	other, fragment := c.label(), c.label()
	c.protocol(6, n.protocol, yes, other)
	c.place(other)
	c.test(bpf.JumpEqual, fragmentHeader, fragment, no)
	c.place(fragment)
	c.protocol(40, n.protocol, yes, no)
}

// fragmentHeader is the IPv6 next-header value of a fragment. As in pcap, it is the one extension header that
// a protocol is sought behind.
const fragmentHeader = 44

// protocol tests the protocol at an offset; -1 is any.
func (c *compiler) protocol(off uint32, protocol int, yes, no int) {
	if protocol < 0 {
		c.jump(yes)
		return
	}
	c.emit(bpf.LoadAbsolute{Off: off, Size: 1})
	c.test(bpf.JumpEqual, uint32(protocol), yes, no)
}

func (c *compiler) network(n network, yes, no int) {
	version, src, dst := uint32(4), uint32(12), uint32(16)
	if n.prefix.Addr().Is6() {
		version, src, dst = 6, 8, 24
	}
	mine := c.label()
	c.version()
	c.test(bpf.JumpEqual, version, mine, no)
	c.place(mine)
	c.sides(n.src, n.dst, n.all, yes, no, func(from bool, yes, no int) {
		off := dst
		if from {
			off = src
		}
		c.prefix(off, n, yes, no)
	})
}

// sides emits one test, or two that are joined.
func (c *compiler) sides(src, dst, all bool, yes, no int, emit func(src bool, yes, no int)) {
	switch second := c.label(); {
	case src && dst && all:
		emit(true, second, no)
		c.place(second)
		emit(false, yes, no)
	case src && dst:
		emit(true, yes, second)
		c.place(second)
		emit(false, yes, no)
	default:
		c.place(second)
		emit(src, yes, no)
	}
}

// prefix compares the address at an offset, word by word.
func (c *compiler) prefix(off uint32, n network, yes, no int) {
	b := n.prefix.Addr().AsSlice()
	for bits := n.prefix.Bits(); bits > 0; bits -= 32 {
		next := c.label()
		c.emit(bpf.LoadAbsolute{Off: off, Size: 4})
		if bits < 32 {
			c.emit(bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: ^uint32(0) << (32 - bits)})
		}
		c.test(bpf.JumpEqual, binary.BigEndian.Uint32(b), next, no)
		c.place(next)
		b, off = b[4:], off+4
	}
	c.jump(yes)
}

// ports tests the ports of an unfragmented packet, or of a first fragment.
func (c *compiler) ports(n ports, yes, no int) {
	four, six, not4 := c.label(), c.label(), c.label()
	c.version()
	c.test(bpf.JumpEqual, 4, four, not4)
	c.place(not4)
	c.test(bpf.JumpEqual, 6, six, no)

	c.place(four)
	if n.version == 6 {
		c.jump(no)
	} else {
		first, whole := c.label(), c.label()
		c.transport(9, n.protocol, first, no)
		c.place(first)
		c.emit(bpf.LoadAbsolute{Off: 6, Size: 2}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0x1fff})
		c.test(bpf.JumpEqual, 0, whole, no)
		c.place(whole)
		c.emit(bpf.LoadMemShift{Off: 0})
		c.sides(n.src, n.dst, n.all, yes, no, func(src bool, yes, no int) {
			c.emit(bpf.LoadIndirect{Off: portAt(src), Size: 2})
			c.span(n.from, n.to, yes, no)
		})
	}
	c.place(six)
	if n.version == 4 {
		c.jump(no)
		return
	}
	found := c.label()
	c.transport(6, n.protocol, found, no)
	c.place(found)
	c.sides(n.src, n.dst, n.all, yes, no, func(src bool, yes, no int) {
		c.emit(bpf.LoadAbsolute{Off: 40 + portAt(src), Size: 2})
		c.span(n.from, n.to, yes, no)
	})
}

// portAt is where a port stands in the headers of TCP, UDP and SCTP.
func portAt(src bool) uint32 {
	if src {
		return 0
	}
	return 2
}

// transport tests whether the protocol at an offset is the one, or has ports if that is -1.
func (c *compiler) transport(off uint32, protocol int, yes, no int) {
	if protocol >= 0 {
		c.protocol(off, protocol, yes, no)
		return
	}
	c.emit(bpf.LoadAbsolute{Off: off, Size: 1})
	for _, v := range []uint32{6, 17} {
		next := c.label()
		c.test(bpf.JumpEqual, v, yes, next)
		c.place(next)
	}
	c.test(bpf.JumpEqual, 132, yes, no)
}

// span tests whether what was loaded is from one number to another.
func (c *compiler) span(from, to uint16, yes, no int) {
	next := c.label()
	c.test(bpf.JumpGreaterOrEqual, uint32(from), next, no)
	c.place(next)
	c.test(bpf.JumpLessOrEqual, uint32(to), yes, no)
}
