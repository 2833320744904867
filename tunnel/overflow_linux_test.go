package tunnel_test

import (
	"errors"
	"net"
	"testing"

	"weft/encap"
	"weft/test/await"
	"weft/tunnel"
	"weft/tunnel/port"
)

// TestSocketOverflowIsCountedAndKept fills the socket's buffer while nobody reads. The
// count is the kernel's, and does not go back when the socket is replaced.
func TestSocketOverflowIsCountedAndKept(t *testing.T) {
	e, err := tunnel.New(tunnel.Config{Format: encap.FormatIP, Port: udpPort})
	if err != nil {
		t.Fatal(err)
	}
	var id tunnel.PortID
	var c net.Conn
	newHost(t).Do(t, func() error {
		s, err := port.ListenUDP(port.UDPOptions{Local: outer("127.0.0.1")})
		if err != nil {
			return err
		}
		if id, err = e.Attach(s, tunnel.RoleUnderlay); err != nil {
			return err
		}
		c, err = net.Dial("udp", outer("127.0.0.1").String())
		return err
	})
	defer func() { _ = c.Close() }()
	big := make([]byte, 60000)
	for range 1000 { // 60 MB: several times what the buffer can be
		if _, err := c.Write(big); err != nil {
			t.Fatal(err)
		}
	}
	running(t, e)
	await.Within(t, within, "an overflow that is counted", func() error {
		if e.Stats().SocketOverflow > 0 {
			return nil
		}
		return errors.New("none")
	})
	before := e.Stats().SocketOverflow
	if err := e.Detach(id); err != nil {
		t.Fatal(err)
	}
	if after := e.Stats().SocketOverflow; after < before {
		t.Errorf("%d before the socket was closed, %d after", before, after)
	}
}
