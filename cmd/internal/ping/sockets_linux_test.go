package ping

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/netns"
)

// A node carries a lot of small packets: only those from the port that was asked may fill the queue of
// answers.
func TestOnlyThePortsDatagramsAreAnswers(t *testing.T) {
	netns.Need(t) // raw sockets
	for _, loopback := range []string{"127.0.0.1", "::1"} {
		from, other := listenAt(t, loopback), listenAt(t, loopback)
		fd, err := answersSocket(uint16(from.LocalAddr().(*net.UDPAddr).Port))
		if err != nil {
			t.Fatal(err)
		}
		send := func(c *net.UDPConn, text string) {
			if _, err := c.WriteTo([]byte(text), other.LocalAddr()); err != nil {
				t.Fatal(err)
			}
		}
		send(other, "another port")
		send(from, string(make([]byte, longestAnswer)))
		send(from, "an answer")
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 30}); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1<<16)
		n, _, err := unix.Recvfrom(fd, b, 0)
		if header := headersOf(loopback); err != nil || n < header || string(b[header:n]) != "an answer" {
			t.Errorf("%s: got %q, %v", loopback, b[:max(n, 0)], err)
		}
		_ = unix.Close(fd)
	}
}

func listenAt(t *testing.T, loopback string) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(loopback)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

func headersOf(loopback string) int {
	if loopback == "::1" {
		return 48
	}
	return 28
}
