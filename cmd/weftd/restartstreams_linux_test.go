package main

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weft/test/await"
)

// carried are the ways in which weft's own data plane carries packets. Without WEFT_LONG=1 each path is there
// once.
func carried() map[string]string {
	all := map[string]string{
		"raw, vxlan":   `{"Type":"vxlan","VNI":7,"Userspace":"always","Path":"raw"}`,
		"socket, ip":   `{"Type":"udp","Path":"socket"}`,
		"portable, ip": `{"Type":"udp","Path":"portable"}`,
		"ipip":         `{"Type":"ipip","Userspace":"always"}`,
	}
	if long() {
		all["raw, ip"] = `{"Type":"udp","Path":"raw"}`
		all["socket, vxlan"] = `{"Type":"vxlan","VNI":7,"Userspace":"always","Path":"socket"}`
		all["portable, vxlan"] = `{"Type":"vxlan","VNI":7,"Userspace":"always","Path":"portable"}`
	}
	return all
}

func long() bool { return os.Getenv("WEFT_LONG") == "1" }

// streams are four TCP connections from one host to another, on each of which a block is on its way there and
// back at each moment.
type streams struct {
	blocks [4]atomic.Int64
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
			for pace := time.NewTicker(10 * time.Millisecond); !s.ending.Load(); <-pace.C {
				_, err := c.Write(b)
				if err == nil {
					_, err = io.ReadFull(c, b)
				}
				if err != nil {
					s.broken.Store(err)
					return
				}
				s.blocks[i].Add(1)
			}
		})
	}
	s.move(t)
	return s
}

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
	_ = s.l.Close()
	for _, c := range s.conns {
		_ = c.Close() // bytes on their way are wanted by nobody
	}
}
