package tunnel

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/tunnel/port"
)

// TestEngineHearsErrorsAgain: an engine that runs ends the silence after a flood of errors.
func TestEngineHearsErrorsAgain(t *testing.T) {
	s, err := port.ListenUDP(port.UDPOptions{Local: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	e := watchedEngine(t)
	if _, err := e.Attach(s, RoleUnderlay); err != nil {
		t.Fatal(err)
	}
	hears := func() bool {
		on, err := unix.GetsockoptInt(s.Queues()[0].PollFD(), unix.IPPROTO_IP, unix.IP_RECVERR)
		if err != nil {
			t.Fatal(err)
		}
		return on == 1
	}
	s.Mute()
	await.OK(t, "errors are heard again", func() error {
		if !hears() {
			return errors.New("the socket is mute")
		}
		return nil
	})
}
