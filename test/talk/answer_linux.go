package talk

import (
	"io"
	"net"
	"time"
)

// Listen answers on every address of the namespace, those that it does not have yet included, until the
// process ends.
func Listen() error {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{Port: echoPort})
	if err != nil {
		return err
	}
	go echo(l) // ends with the process
	c, err := net.ListenUDP("udp", &net.UDPAddr{Port: echoPort})
	if err != nil {
		return err
	}
	if err := whole(c); err != nil {
		return err
	}
	_ = c.SetReadBuffer(1 << 20)
	go echoDatagrams(c) // ends with the process
	return nil
}

func echo(l *net.TCPListener) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return
		}
		go func() { // ends with the connection
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

func echoDatagrams(c *net.UDPConn) {
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
