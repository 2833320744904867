package talk

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// Listen answers on every address of the namespace, those that it does not have yet included, until the process ends.
func Listen() error {
	for port, answer := range map[int]func(*net.TCPConn){echoPort: echo, sinkPort: count} {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{Port: port})
		if err != nil {
			return err
		}
		go accept(l, answer) // ends with the process
	}
	var arrived atomic.Int64
	for port, answer := range map[int]func(*net.UDPConn, *atomic.Int64){echoPort: echoDatagrams, sinkPort: countDatagrams} {
		c, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
		if err != nil {
			return err
		}
		if err := whole(c); err != nil {
			return err
		}
		_ = c.SetReadBuffer(1 << 20)
		go answer(c, &arrived) // ends with the process
	}
	return nil
}

func accept(l *net.TCPListener, answer func(*net.TCPConn)) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return
		}
		go func() { // ends with the connection
			defer c.Close()
			answer(c)
		}()
	}
}

func echo(c *net.TCPConn) {
	_, _ = io.Copy(c, c)
}

// count takes what arrives, and says how much it was.
func count(c *net.TCPConn) {
	b, total := make([]byte, 256<<10), uint64(0)
	for {
		n, err := c.Read(b)
		total += uint64(n)
		if err != nil {
			break
		}
	}
	_ = binary.Write(c, binary.BigEndian, total)
}

func echoDatagrams(c *net.UDPConn, _ *atomic.Int64) {
	b := make([]byte, 64<<10)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if err == nil {
			_, _ = c.WriteToUDPAddrPort(b[:n], from)
		} else if n == 0 {
			time.Sleep(time.Millisecond) // an ICMP error about an answer
		}
	}
}

// countDatagrams answers an empty datagram with how many others came since the last empty one.
func countDatagrams(c *net.UDPConn, arrived *atomic.Int64) {
	b := make([]byte, 64<<10)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		switch {
		case err != nil:
			time.Sleep(time.Millisecond)
		case n > 0:
			arrived.Add(1)
		default:
			_, _ = c.WriteToUDPAddrPort(fmt.Append(nil, arrived.Swap(0)), from)
		}
	}
}
