package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weft/test/await"
)

// carried are the ways in which weft's own data plane carries packets; the first three have each path and each format once.
func carried() map[string]string {
	all := map[string]string{
		"raw, vxlan":    `{"Type":"vxlan","VNI":7,"Userspace":"always","Path":"raw"}`,
		"socket, ip":    `{"Type":"udp","Path":"socket"}`,
		"portable, ip":  `{"Type":"udp","Path":"portable"}`,
		"raw, ip":       `{"Type":"udp","Path":"raw"}`,
		"socket, vxlan": `{"Type":"vxlan","VNI":7,"Userspace":"always","Path":"socket"}`,
	}
	if long() {
		all["portable, vxlan"] = `{"Type":"vxlan","VNI":7,"Userspace":"always","Path":"portable"}`
	} else {
		delete(all, "raw, ip") // TestHandOverLosesNothing has it
		delete(all, "socket, vxlan")
	}
	return all
}

func long() bool { return os.Getenv("WEFT_LONG") == "1" }

// turns is how often each kind of restart follows another.
func turns() int {
	if long() {
		return 20
	}
	return 1
}

// fits is how long nobody may have read for queues to have held everything: the smallest, the TUN's, lasts for a second at a thousand
// packets a second. A machine that is so busy that a weftd takes longer proves nothing.
const fits = 900 * time.Millisecond

// inHands is how many packets a process that is killed may take with it, since it had read and not yet written them: at a thousand a second one to three,
// and on some kills only. What comes while nobody is there is a hundred and more.
const inHands = 16

// What is sent while weftd is replaced, is stopped, or is killed, and started again, waits in queues, and arrives. Connections stay, and bytes
// move on them again.
func TestNothingIsLostThatFitsIntoTheQueues(t *testing.T) {
	t.Parallel()
	for name, backend := range carried() {
		t.Run(name, func(t *testing.T) {
			a, b := pairOf(t, backend)
			a.start(t)
			b.start(t)
			a.awaitReady(t)
			b.awaitReady(t)
			a.reaches(t, b)
			s := a.streams(t, b)
			for _, k := range []struct {
				name  string
				most  int64 // how many may be lost
				again func()
			}{
				{"SIGTERM", 0, func() { b.stop(t, syscall.SIGTERM); b.start(t) }},
				{"SIGKILL", inHands, func() { b.stop(t, syscall.SIGKILL); b.start(t) }},
				{"hand-over", 0, func() {
					if _, err := b.upgrade(t); err != nil {
						t.Error(err)
					}
				}},
			} {
				var total, clean int64
				var longest time.Duration
				for range turns() {
					for try := range 3 {
						lost, gap := b.interrupted(t, a, k.again)
						total, longest = total+lost, max(longest, gap)
						if lost == 0 {
							clean++
						}
						if lost <= k.most {
							break
						}
						if t.Logf("%s: %d lost, nobody read for up to %v", k.name, lost, gap); try == 2 && gap < fits {
							t.Errorf("%s: %d lost of what fits into the queues", k.name, lost)
						}
					}
				}
				t.Logf("%s: %d times, %d of them without a loss, %d packets lost in all, the longest time without one %v; TCP stood still for %v at most", k.name, turns(), clean, total, longest, s.stall())
				s.move(t)
			}
			s.end(t)
			t.Cleanup(func() { b.ended(t) })
			b.ended(t)
		})
	}
}

// interrupted counts what is lost of packets both ways, one each millisecond, while something is done to b; gap is the longest time
// without one. When it returns b is ready, and its ports are kept.
func (h *host) interrupted(t *testing.T, from *host, what func()) (lost int64, gap time.Duration) {
	t.Helper()
	h.portsKept(t)
	there, back := from.flows(t, h, 7001), h.flows(t, from, 7002)
	moved := func(by int64) {
		n, m := there.got.Load()+by, back.got.Load()+by
		await.OK(t, "packets flow", func() error {
			if there.got.Load() < n || back.got.Load() < m {
				return errors.New("too few yet")
			}
			return nil
		})
	}
	moved(100)
	there.gap.Store(0)
	back.gap.Store(0)
	what()
	h.awaitReady(t)
	moved(100)
	return there.over(t) + back.over(t), time.Duration(max(there.gap.Load(), back.gap.Load()))
}

// streams are four TCP connections from one host to another, on each of which a block is on its way there and back at each moment.
type streams struct {
	blocks [4]atomic.Int64
	worst  atomic.Int64 // nanoseconds: the longest time that a block took
	broken atomic.Value // error
	ending atomic.Bool
	l      net.Listener
	conns  []net.Conn
	done   sync.WaitGroup
}

func (h *host) streams(t *testing.T, to *host) *streams {
	t.Helper()
	s := &streams{}
	at := netip.AddrPortFrom(to.inner(t), 7003).String()
	if err := to.ns.Do(func() (err error) { s.l, err = net.Listen("tcp", at); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.l.Close() })
	go func() { // ends with l
		for {
			c, err := s.l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }() // ends with the connection
		}
	}()
	for i := range s.blocks {
		c, err := h.ns.Dial(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		s.conns = append(s.conns, c)
		s.done.Go(func() {
			b := make([]byte, 4096)
			for !s.ending.Load() {
				began := time.Now()
				_, err := c.Write(b)
				if err == nil {
					_, err = io.ReadFull(c, b)
				}
				if err != nil {
					s.broken.Store(err)
					return
				}
				s.worst.Store(max(s.worst.Load(), int64(time.Since(began))))
				s.blocks[i].Add(1)
			}
		})
	}
	s.move(t)
	return s
}

// stall is the longest time that a block took since it was last asked for.
func (s *streams) stall() time.Duration { return time.Duration(s.worst.Swap(0)) }

// move waits until a block has come back on each.
func (s *streams) move(t *testing.T) {
	t.Helper()
	for i := range s.blocks {
		n := s.blocks[i].Load()
		await.OK(t, "bytes move", func() error {
			if err, ok := s.broken.Load().(error); ok {
				t.Fatalf("a connection broke: %v", err)
			}
			if s.blocks[i].Load() <= n {
				return fmt.Errorf("connection %d stands still", i)
			}
			return nil
		})
	}
}

func (s *streams) end(t *testing.T) {
	t.Helper()
	s.move(t)
	s.ending.Store(true)
	s.done.Wait()
	for _, c := range s.conns {
		_ = c.Close() // bytes on their way are wanted by nobody
	}
}
