package tunnel_test

import (
	"bytes"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTCPWithExtensionHeader sends in bulk from a socket that puts destination options
// before every TCP header (RFC 3542 section 9.2), and so in superpackets too.
func TestTCPWithExtensionHeader(t *testing.T) {
	t.Parallel()
	o := newOverlay(t, "192.0.2.1", "192.0.2.2", 1500, [2]path{})
	var l net.Listener
	o.hosts[1].Do(t, func() (err error) { l, err = net.Listen("tcp", "[fd00:1:2::]:0"); return err })
	defer func() { _ = l.Close() }()
	data := bytes.Repeat([]byte("weft"), 100_000)
	o.hosts[0].Do(t, func() error {
		d := net.Dialer{Timeout: within, Control: func(_, _ string, c syscall.RawConn) (err error) {
			e := c.Control(func(fd uintptr) {
				// PadN
				err = unix.SetsockoptString(int(fd), unix.IPPROTO_IPV6, unix.IPV6_DSTOPTS,
					"\x00\x00\x01\x04\x00\x00\x00\x00")
			})
			if e != nil {
				return e
			}
			return err
		}}
		c, err := d.Dial("tcp", l.Addr().String())
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = c.Close() }()
			_, _ = c.Write(data)
		}()
		return nil
	})
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(within))
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes arrived of %d: %v; %+v", len(got), len(data), err, o.engines[0].Stats())
	}
}
