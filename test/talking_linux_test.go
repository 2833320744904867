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

// talking is a connection by which a few bytes go there and back, again and again.
type talking struct {
	turns  atomic.Int64
	failed chan error
}

// talkTo has a pod talk by TCP to a host, with so many bytes and a pause each time. seen is the address that
// the host sees.
func talkTo(t *testing.T, from *lab.Pod, to *lab.Host, at netip.AddrPort, size int, pause time.Duration) (
	k *talking, seen netip.Addr) {
	t.Helper()
	l := listenTCP(t, to, at)
	peers := make(chan net.Addr, 1)
	go func() { // ends with the listener, and with the connection
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		peers <- c.RemoteAddr()
		_, _ = io.Copy(c, c)
	}()
	c, err := from.NS.Dial(t.Context(), "tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return keepTalking(c, size, pause), netip.MustParseAddrPort((<-peers).String()).Addr()
}

// listenTCP has a host listen until the test ends.
func listenTCP(t *testing.T, h *lab.Host, at netip.AddrPort) (l net.Listener) {
	t.Helper()
	await.OK(t, "a listener at "+at.String(), func() error {
		return h.Do(func() (err error) { l, err = net.Listen("tcp", at.String()); return err })
	})
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// keepTalking says so many bytes, other ones each time, waits until the same are back, and pauses, again and
// again, until the connection ends.
func keepTalking(c net.Conn, size int, pause time.Duration) *talking {
	k := &talking{failed: make(chan error, 1)}
	go func() { // ends with the connection
		for back := make([]byte, size); ; k.turns.Add(1) {
			out := bytes.Repeat(binary.BigEndian.AppendUint64(nil, uint64(k.turns.Load())), size/8)
			_, err := c.Write(out)
			if err == nil {
				_, err = io.ReadFull(c, back)
			}
			if err == nil && !bytes.Equal(back, out) {
				err = errors.New("other bytes came back")
			}
			if err != nil {
				k.failed <- err
				return
			}
			time.Sleep(pause)
		}
	}()
	return k
}

// goesOn waits for more turns of the same connection.
func (k *talking) goesOn(t *testing.T, turns int64) {
	t.Helper()
	k.goesOnWithin(t, await.Patience, turns)
}

// goesOnWithin is goesOn with another limit.
func (k *talking) goesOnWithin(t *testing.T, limit time.Duration, turns int64) {
	t.Helper()
	from := k.turns.Load()
	await.Within(t, limit, "the connection goes on", func() error {
		select {
		case err := <-k.failed:
			t.Fatalf("the connection broke after %d turns: %v", k.turns.Load(), err)
		default:
		}
		if now := k.turns.Load(); now < from+turns {
			return fmt.Errorf("%d turns, before %d", now, from)
		}
		return nil
	})
}
