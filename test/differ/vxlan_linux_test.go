package differ

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/tunnel"
)

const (
	// batchSize is how many packets are under way at once in a data plane, but for the last superpacket. The
	// devices' queues have room for them (queueLen), and a batch costs each data plane a few switches of tasks,
	// which are a quarter of the costs with 64.
	batchSize = 512
	// patience is for one batch, on a machine that does something else as well.
	patience = 30 * time.Second
)

// options are of a run: WEFT_DIFFER="packets=1000000 seed=7 only=raw".
type options struct {
	packets, seed uint64
	only          string
}

func readOptions(t *testing.T, packets uint64) options {
	o := options{packets: packets, seed: 1}
	for _, f := range strings.Fields(os.Getenv("WEFT_DIFFER")) {
		k, v, _ := strings.Cut(f, "=")
		n, err := strconv.ParseUint(v, 10, 64)
		switch {
		case k == "only":
			o.only, err = v, nil
		case k == "packets":
			o.packets = n
		case k == "seed":
			o.seed = n
		default:
			err = fmt.Errorf("it is none of packets, seed and only")
		}
		if err != nil {
			t.Fatalf("WEFT_DIFFER: %q: %v", f, err)
		}
	}
	return o
}

// direction is a way through a host.
type direction struct {
	name    string
	make    func(d dice, l *load)
	means   func(b []byte, raw bool) meant // of what goes in; nil: the same as the kernel
	refuses func(b []byte) reason          // of what the kernel sends: why weft does not; nil: it does
	in, out func(r *rig) int               // descriptors
	keep    func(b []byte) bool
	same    func(b []byte) []byte // what is compared; it may change b
	mark    func(b []byte, n uint64) []byte
	marked  func(b []byte) (uint64, bool)
}

// TestDiffersFromKernelVXLANOnlyAsSaid gives the same packets to the kernel's vxlan and to every path of
// weft's, in both directions and over both families.
func TestDiffersFromKernelVXLANOnlyAsSaid(t *testing.T) {
	o := readOptions(t, 3_000)
	for _, u := range []underlay{false, true} {
		name := map[underlay]string{false: "IPv4", true: "IPv6"}[u]
		t.Run("over "+name, func(t *testing.T) {
			kernel := newRig(t, bool(u), 0)
			var rigs []*rig
			for _, p := range []tunnel.Path{tunnel.PathPortable, tunnel.PathSocket, tunnel.PathRaw} {
				if o.only == "" || o.only == p.String() {
					rigs = append(rigs, newRig(t, bool(u), p))
				}
			}
			for _, way := range []direction{decapsulation(u), encapsulation(u)} {
				t.Run(way.name, func(t *testing.T) {
					began := time.Now()
					c := &comparison{t: t, way: way, kernel: kernel, rigs: rigs, dice: newDice(), o: o,
						told: map[reason]uint64{}}
					c.run()
					t.Logf("seed %d: %d packets on %d paths, %d of them in %d superpackets, %d passed by the kernel, %.0f "+
						"comparisons a second; %d batches one by one, %d marks again; explained: %v",
						o.seed, c.made, len(rigs), c.joined, c.supers, c.passed,
						float64(c.made)*float64(len(rigs))/time.Since(began).Seconds(), c.again, c.lost, c.told)
					for _, r := range rigs {
						c.exercised(r)
					}
				})
			}
		})
	}
}

// comparison is one direction's run.
type comparison struct {
	t      *testing.T
	way    direction
	kernel *rig
	rigs   []*rig
	dice   dice
	o      options

	loads     []load // of the batch
	want, got packets
	scratch   []byte
	// packets, those in superpackets, superpackets, and packets that the kernel passed on
	made, joined, supers, passed uint64
	again, lost                  int // batches that were sent again one by one, and marks that were
	told                         map[reason]uint64
	before                       map[*rig]tunnel.Stats
}

func (c *comparison) run() {
	c.before = map[*rig]tunnel.Stats{}
	for _, r := range append([]*rig{c.kernel}, c.rigs...) {
		c.settle(r)
		if r.engine != nil {
			c.before[r] = r.engine.Stats()
		}
	}
	for n := uint64(0); c.made < c.o.packets && !c.t.Failed(); {
		c.want.reset()
		first, under := n, 0
		for ; under < batchSize && c.made < c.o.packets; n++ {
			if int(n-first) == len(c.loads) {
				c.loads = append(c.loads, load{})
			}
			l := &c.loads[n-first]
			l.roll(c.dice, c.way, c.o.seed, n)
			c.wanted(l, false, c.told)
			under += l.packets()
			c.made += uint64(l.packets())
			if l.packets() > 1 {
				c.supers++
				c.joined += uint64(l.packets())
			}
		}
		c.passed += uint64(c.want.len())
		loads := c.loads[:n-first]
		for _, r := range c.rigs {
			for i := range loads {
				r.give(c.way.in(r), &loads[i])
			}
			c.mark(r)
		}
		for _, r := range c.rigs {
			c.got.reset()
			c.collect(r)
			if why, same := c.same(&c.got, &c.want); same {
				c.told[why]++
			} else {
				c.again++
				c.oneByOne(r, first, n)
			}
			c.drain(r)
		}
		c.drain(c.kernel)
	}
}

// wanted appends what the kernel makes of l, or of what weft means to treat it as, and counts in told why
// that is something else.
func (c *comparison) wanted(l *load, raw bool, told map[reason]uint64) {
	c.kernel.read(c.way.out(c.kernel), &c.got, func([]byte) bool { return false })
	was, from := c.want.len(), len(c.want.data)
	for i := range l.parts.len() {
		c.scratch = append(c.scratch[:0], l.parts.at(i)...)
		var m meant
		if c.way.means != nil {
			if m = c.way.means(c.scratch, raw); m.drop {
				told[m.why]++
				continue
			}
		}
		c.kernel.write(c.way.in(c.kernel), l.partHeader, c.scratch)
		c.kernel.read(c.way.out(c.kernel), &c.want, func(b []byte) bool {
			if c.way.refuses != nil && c.way.keep(b) {
				if why := c.way.refuses(b); why != notTold {
					m.why = why
					return false
				}
			}
			return c.way.keep(b)
		})
		told[m.why]++
	}
	c.normalise(&c.want, was, from)
}

// normalise makes of the packets of p from the given one on what is compared.
func (c *comparison) normalise(p *packets, i, from int) {
	for ; i < len(p.ends); i++ {
		c.way.same(p.data[from:p.ends[i]])
		from = p.ends[i]
	}
}

// mark sends a packet that is numbered. All before it have come once it has.
func (c *comparison) mark(r *rig) {
	r.marks++
	r.write(c.way.in(r), header{}, c.way.mark(nil, r.marks))
}

// collect reads what the host sends up to the last mark.
func (c *comparison) collect(r *rig) {
	was, from := c.got.len(), len(c.got.data)
	deadline := time.Now().Add(patience)
	arrived, again := false, time.Now().Add(time.Second)
	for !arrived {
		r.read(c.way.out(r), &c.got, func(b []byte) bool {
			n, ok := c.way.marked(b)
			arrived = arrived || ok && n == r.marks
			return !ok && c.way.keep(b)
		})
		if arrived {
			break
		}
		fds := []unix.PollFd{{Fd: int32(c.way.out(r)), Events: unix.POLLIN}}
		_, _ = unix.Poll(fds, 100)
		if time.Now().After(again) { // it may have been lost: another one tells
			again = time.Now().Add(time.Second)
			c.lost++
			r.write(c.way.in(r), header{}, c.way.mark(nil, r.marks))
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s carries nothing any more; %+v", r.name, r.engine.Stats())
		}
	}
	c.normalise(&c.got, was, from)
}

// drain throws away what the host has sent the other way: ICMP errors about what it could not forward.
func (c *comparison) drain(r *rig) {
	none := func([]byte) bool { return false }
	r.read(c.way.in(r), &c.got, none)
	r.read(c.way.out(r), &c.got, none)
}

// settle waits until the host carries packets.
func (c *comparison) settle(r *rig) {
	for deadline := time.Now().Add(patience); ; {
		r.write(c.way.in(r), header{}, c.way.mark(nil, 0))
		time.Sleep(time.Millisecond)
		ok := false
		r.read(c.way.out(r), &c.got, func(b []byte) bool {
			_, is := c.way.marked(b)
			ok = ok || is
			return false
		})
		if ok {
			c.drain(r)
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s carries nothing", r.name)
		}
	}
}

// same says whether weft made of a batch what is wanted, and why it is something else byte for byte.
func (c *comparison) same(got, want *packets) (why reason, ok bool) {
	if c.way.means == nil || bytes.Equal(got.data, want.data) {
		return notTold, got.len() == want.len() && bytes.Equal(got.data, want.data)
	}
	return sameByFlow(got, want)
}

// oneByOne sends the loads from number first on again, each by itself, and reports those that still differ:
// what a queue lost, or what came in another order on a busy machine, is no difference.
func (c *comparison) oneByOne(r *rig, first, end uint64) {
	for n := first; n < end; n++ {
		var l load
		l.roll(c.dice, c.way, c.o.seed, n)
		if want, got, differs := c.differs(r, &l); differs {
			c.report(r, n, &l, want, got)
			return
		}
	}
}

// differs says whether weft makes something else of l than is wanted, three times of three.
func (c *comparison) differs(r *rig, l *load) (want, got packets, differs bool) {
	keep := c.want
	defer func() { c.want = keep }()
	for range 3 {
		c.want, c.got = packets{}, packets{}
		c.drain(r)
		c.wanted(l, r.name == tunnel.PathRaw.String(), map[reason]uint64{})
		r.give(c.way.in(r), l)
		for range 3 { // a packet and a mark may be in two queues
			c.mark(r)
			c.collect(r)
		}
		want, got = c.want, c.got
		c.got = packets{}
		if _, same := c.same(&got, &want); same {
			return want, got, false
		}
	}
	return want, got, true
}

// report says what differs, of the shortest packet that does, or of the fewest of a superpacket.
func (c *comparison) report(r *rig, number uint64, l *load, want, got packets) {
	c.t.Helper()
	for size := len(l.data) - 1; size > 0 && l.packets() == 1; { // without what is behind the headers
		short := single(l.data[:size])
		w, g, differs := c.differs(r, &short)
		if !differs {
			break
		}
		*l, want, got = short, w, g
		size -= max(1, size/8)
	}
	for i := l.parts.len() - 1; i >= 0 && l.parts.len() > 2; i-- {
		fewer, ok := l.without(i)
		if !ok {
			break
		}
		if w, g, differs := c.differs(r, &fewer); differs {
			*l, want, got = fewer, w, g
		}
	}
	told := map[reason]uint64{}
	c.wanted(l, r.name == tunnel.PathRaw.String(), told)
	c.t.Errorf("%s differs from the kernel, %s, seed %d, number %d (%v):\n%x %x", r.name, c.way.name, c.o.seed,
		number, told, l.header, l.data)
	for i := range max(want.len(), got.len()) {
		if i < want.len() && i < got.len() && bytes.Equal(want.at(i), got.at(i)) {
			continue
		}
		if i < want.len() {
			c.t.Errorf("%d want %x", i, want.at(i))
		}
		if i < got.len() {
			c.t.Errorf("%d got  %x", i, got.at(i))
		}
	}
	if r.engine != nil {
		c.t.Logf("%+v", r.engine.Stats())
	}
}

// The payload of a mark, before its number.
const markText = "differ's mark: "

func markInner(from, to byte, n uint64) []byte {
	p := append(make([]byte, encap.IPv4Len+encap.UDPLen), markText...)
	p = binary.BigEndian.AppendUint64(p, n)
	p[0], p[8], p[9] = 0x45, 64, encap.ProtoUDP
	copy(p[12:], []byte{10, 1, from, 254, 10, 1, to, 254})
	binary.BigEndian.PutUint16(p[encap.IPv4Len+4:], uint16(len(p)-encap.IPv4Len))
	finish4(p)
	return p
}

func markOf(b []byte) (n uint64, ok bool) {
	const at = encap.IPv4Len + encap.UDPLen
	if len(b) != at+len(markText)+8 || string(b[at:at+len(markText)]) != markText {
		return 0, false
	}
	return binary.BigEndian.Uint64(b[at+len(markText):]), true
}

func podOf(r *rig) int  { return r.pod }
func wireOf(r *rig) int { return r.wire }

// decapsulation takes frames of the underlay, and compares what arrives at pods: all of it.
func decapsulation(u underlay) direction {
	return direction{
		name: "decapsulation", in: wireOf, out: podOf, make: u.arrives, means: u.means,
		keep: func(b []byte) bool { return !ofHost(b) },
		same: func(b []byte) []byte { return b },
		mark: func(b []byte, n uint64) []byte {
			d := newDice()
			f := append(make([]byte, u.inner()), markInner(peerNet, ourNet, n)...)
			valid := u.frameAround(d, f)
			return append(b, valid...)
		},
		marked: markOf,
	}
}

// ofHost says whether the source of an inner packet is one of the host itself, as ICMP errors have it.
func ofHost(b []byte) bool {
	switch {
	case len(b) >= encap.IPv4Len && b[0]>>4 == 4:
		return bytes.Equal(b[12:16], []byte{10, 1, ourNet, 0})
	case len(b) >= encap.IPv6Len && b[0]>>4 == 6:
		return bytes.Equal(b[8:24], []byte{0xfd, 0, 0, 1, 0, ourNet, 15: 0})
	}
	return false
}
