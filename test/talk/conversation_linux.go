package talk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	echoPort = 7007 // TCP and UDP: says again what it hears
	patience = 5 * time.Second
	settled  = 6 * patience // how long after a request all is to be as it will be, on a busy machine too
	atOnce   = 4            // conversations of one talker's
)

// talkToAll returns how many conversations there were, three for each target, and what went wrong. A
// conversation that fails is tried again for a while, the first ones longest: a peer's route may come a
// moment after our own.
func talkToAll(targets []Target) (held int, faults []string) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	places, began := make(chan struct{}, atOnce), time.Now()
	for _, to := range targets {
		for name, say := range map[string]func(Target) error{"TCP": sayTCP, "UDP": sayUDP, "full size": sayFull} {
			places <- struct{}{}
			wg.Go(func() {
				defer func() { <-places }()
				err := until(began.Add(settled), func() error { return say(to) })
				mu.Lock()
				defer mu.Unlock()
				if held++; err != nil {
					faults = append(faults, fmt.Sprintf("%s to %s: %v", name, to.Addr, err))
				}
			})
		}
	}
	wg.Wait()
	return held, faults
}

// until tries for a while, and at least to that time.
func until(least time.Time, try func() error) error {
	end := time.Now().Add(2 * patience)
	for {
		err := try()
		if now := time.Now(); err == nil || now.After(end) && now.After(least) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// sayTCP hears 64 KiB again that it says.
func sayTCP(to Target) error {
	c, err := net.DialTimeout("tcp", at(to.Addr, echoPort), patience)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	said := random(64 << 10)
	sent := make(chan error, 1)
	go func() { // waited for below
		_, err := c.Write(said)
		sent <- errors.Join(err, c.(*net.TCPConn).CloseWrite())
	}()
	heard, err := io.ReadAll(c)
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	if !bytes.Equal(said, heard) {
		return fmt.Errorf("%d bytes came back, and not the %d that were sent", len(heard), len(said))
	}
	return nil
}

func sayUDP(to Target) error { return sayDatagram(to, 100) }

// sayFull says a datagram that is as long as the path can carry, and finds that one byte more is refused.
func sayFull(to Target) error {
	headers := 28
	if to.Addr.Is6() {
		headers = 48
	}
	if err := sayDatagram(to, to.MTU-headers); err != nil {
		return err
	}
	if err := sayDatagram(to, to.MTU-headers+1); !errors.Is(err, unix.EMSGSIZE) {
		return fmt.Errorf("a packet of %d bytes, one more than the MTU: %s, want %w", to.MTU+1, fmt.Sprint(err),
			unix.EMSGSIZE)
	}
	return nil
}

// sayDatagram hears a datagram again. Neither may be fragmented on the way.
func sayDatagram(to Target, size int) error {
	c, err := net.Dial("udp", at(to.Addr, echoPort))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := whole(c.(*net.UDPConn)); err != nil {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(patience / 5))
	said := random(size)
	if _, err := c.Write(said); err != nil {
		return err
	}
	heard := make([]byte, size+1)
	n, err := c.Read(heard)
	if err == nil && !bytes.Equal(said, heard[:n]) {
		err = fmt.Errorf("%d bytes came back, and not the %d that were sent", n, size)
	}
	return err
}

// whole sets DF, and its like for IPv6.
func whole(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var four, six error
	err = raw.Control(func(fd uintptr) {
		four = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		six = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
	})
	if four != nil && six != nil {
		return errors.Join(four, six)
	}
	return err
}

func at(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }

func random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}
