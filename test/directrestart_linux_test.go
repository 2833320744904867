package test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

// A connection is of numbered blocks, of which directWindow are under way at the most, so that what waits while a weftd is away is
// a few segments and not what the kernel's buffers hold.
const (
	directBlock  = 4096
	directWindow = 8
)

// directRestart kills the weftd of each of two nodes, and starts it again, while a TCP connection between pods of theirs has bytes under way in both
// directions: the same connection brings every byte of them back, and no pod is attached anew.
func directRestart(t *testing.T, a, b *lab.Pod, family int) {
	echoTCP(t, b, family)
	c := dialBlocks(t, a, netip.AddrPortFrom(b.Addr(family), backendPort))
	c.more(t, 100)
	for _, n := range []*lab.Node{b.Node, a.Node} {
		before := attachedTo(t, n)
		d := n.Daemon
		if err := d.Kill(); err != nil {
			t.Fatal(err)
		}
		<-d.Exited()
		sent := c.sent.Load()
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(lab.Explain(err))
		}
		c.more(t, 100)
		if after := attachedTo(t, n); after != before {
			t.Errorf("%s: %d pods are attached, before it was killed %d", n.Name, after, before)
		}
		t.Logf("%s was killed and is back: %d blocks were sent until then, %d are back now", n.Name, sent, c.back.Load())
	}
	c.end(t)
}

// attachedTo counts the pods of a node, of which none may have a problem.
func attachedTo(t *testing.T, n *lab.Node) (attached int) {
	t.Helper()
	await.OK(t, n.Name+" has ports for its pods", func() error {
		all, err := ask[podsJSON](t.Context(), n, "pods")
		if err != nil {
			return err
		}
		attached = len(all.Pods)
		for _, p := range all.Pods {
			if p.State != "attached" || p.Problem != "" {
				return fmt.Errorf("%s is %s: %s", p.ID, p.State, p.Problem)
			}
		}
		return nil
	})
	return attached
}

// directStream is a connection to an echo, by which blocks go there and back until it is told to end.
type directStream struct {
	net.Conn
	sent, back atomic.Int64
	stop       chan struct{}
	free       chan struct{} // as many as may be sent
	failed     chan error    // of both directions; nil each if it ended as it should
}

func dialBlocks(t *testing.T, from *lab.Pod, to netip.AddrPort) *directStream {
	t.Helper()
	conn, err := from.NS.Dial(t.Context(), "tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	c := &directStream{Conn: conn, stop: make(chan struct{}), free: make(chan struct{}, directWindow), failed: make(chan error, 2)}
	t.Cleanup(func() { _ = conn.Close() })
	for range directWindow {
		c.free <- struct{}{}
	}
	go func() { c.failed <- c.send() }()
	go func() { c.failed <- c.receive() }()
	return c
}

// numbered is the one of that number.
func numbered(n int64) []byte {
	return bytes.Repeat(binary.BigEndian.AppendUint64(nil, uint64(n)), directBlock/8)
}

func (c *directStream) send() error {
	for {
		select {
		case <-c.stop:
			if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
				return half.CloseWrite()
			}
			return errors.New("the connection has no half to close")
		case <-c.free:
		}
		if _, err := c.Write(numbered(c.sent.Load())); err != nil {
			return fmt.Errorf("block %d: %w", c.sent.Load(), err)
		}
		c.sent.Add(1)
	}
}

func (c *directStream) receive() error {
	got := make([]byte, directBlock)
	for {
		switch n, err := io.ReadFull(c, got); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%d bytes after block %d: %w", n, c.back.Load(), err)
		case !bytes.Equal(got, numbered(c.back.Load())):
			return fmt.Errorf("block %d is not what was sent", c.back.Load())
		}
		c.back.Add(1)
		select {
		case c.free <- struct{}{}:
		default: // never: each block took one
		}
	}
}

// more waits until more blocks are back that were sent from now on.
func (c *directStream) more(t *testing.T, n int64) {
	t.Helper()
	want := c.sent.Load() + n
	await.Within(t, 2*await.Patience, "blocks are back", func() error {
		select {
		case err := <-c.failed:
			t.Fatalf("the connection ended: %v", err)
		default:
		}
		if back := c.back.Load(); back < want {
			return fmt.Errorf("%d of %d, %d sent", back, want, c.sent.Load())
		}
		return nil
	})
}

// end closes the connection in both directions; all blocks have to be back.
func (c *directStream) end(t *testing.T) {
	t.Helper()
	close(c.stop)
	for range 2 {
		select {
		case err := <-c.failed:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(2 * await.Patience):
			t.Fatalf("%d of %d blocks are back, and the connection does not end", c.back.Load(), c.sent.Load())
		}
	}
	if sent, back := c.sent.Load(), c.back.Load(); sent != back {
		t.Errorf("%d blocks were sent, %d are back", sent, back)
	}
}
