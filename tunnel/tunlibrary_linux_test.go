package tunnel_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"

	"weft/tunnel"
)

// BenchmarkTUNLibrary compares a packet's read and write on path portable, a system call each, with wireguard/tun's on
// the same device. A packet has 1400 bytes, and 64 are waiting when it is read.
func BenchmarkTUNLibrary(b *testing.B) {
	newHost(b).Do(b, func() error {
		dev, err := tunnel.OpenTUN(tunnel.TUNOptions{Name: "flannel0", Transient: true})
		if err != nil {
			return err
		}
		defer dev.Close()
		link, err := netlink.LinkByName("flannel0")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr("10.42.1.1/16")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		fd := dev.PollFD()
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		library, _, err := tun.CreateUnmonitoredTUNFromFD(dup)
		if err != nil {
			return err
		}
		defer library.Close()
		to, err := net.Dial("udp4", "10.42.2.1:9")
		if err != nil {
			return err
		}
		defer to.Close()
		buf, sizes := make([]byte, 2048), make([]int, 1)
		packet := udp4(b, "10.42.2.1", "10.42.3.1", 1400, nil)
		in, out := [][]byte{buf}, [][]byte{packet}
		for _, c := range []struct {
			name        string
			read, write func() error
		}{
			{"by=call", func() error { _, err := unix.Read(fd, buf); return err }, func() error { _, err := unix.Write(fd, packet); return err }},
			{"by=library", func() error { _, err := library.Read(in, sizes, 0); return err },
				func() error { _, err := library.Write(out, 0); return err }},
		} {
			b.Run("write/"+c.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := c.write(); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("read/"+c.name, func(b *testing.B) {
				var spent time.Duration
				read := 0
				for b.Loop() {
					if err := fill(fd, to, packet); err != nil {
						b.Fatal(err)
					}
					start := time.Now()
					for range waitingPackets {
						if err := c.read(); err != nil {
							b.Fatal(err)
						}
					}
					spent, read = spent+time.Since(start), read+waitingPackets
				}
				b.ReportMetric(float64(spent.Nanoseconds())/float64(read), "ns/packet")
			})
		}
		return nil
	})
}

const waitingPackets = 64

// fill empties the device's queue and puts packets into it.
func fill(fd int, to net.Conn, packet []byte) error {
	for b := make([]byte, 2048); ; {
		if _, err := unix.Read(fd, b); err == unix.EAGAIN {
			break
		} else if err != nil {
			return err
		}
	}
	for range waitingPackets {
		if _, err := to.Write(packet[28:]); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}
