package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// tableSocket is a netlink socket by which a table of nf_tables is made and changed that belongs to it. The table's owner is the socket's port
// number, so that whoever is given the socket owns the table. It is not safe for concurrent use, also by other processes.
type tableSocket struct {
	fd   int
	seq  uint32
	shut sync.Once
}

// newTableSocket opens one in the current network namespace.
func newTableSocket() (*tableSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &tableSocket{fd: fd}, nil
}

// message is one of a transaction.
func tableMessage(kind int, flags netlink.HeaderFlags, attrs []netlink.Attribute) (netlink.Message, error) {
	b, err := netlink.MarshalAttributes(attrs)
	header := netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: flags}
	return netlink.Message{Header: header, Data: append(nfgenmsg(nftables.TableFamilyNetdev, 0), b...)}, err
}

func nfgenmsg(f nftables.TableFamily, resource uint16) []byte {
	return binary.BigEndian.AppendUint16([]byte{byte(f), unix.NFNETLINK_V0}, resource)
}

// commit sends messages as one transaction and waits for the answer to each. The error is the first of any.
func (s *tableSocket) commit(messages ...netlink.Message) error {
	s.drain()
	batch := func(kind int) netlink.Message {
		return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind)}, Data: nfgenmsg(nftables.TableFamilyUnspecified, unix.NFNL_SUBSYS_NFTABLES)}
	}
	var out []byte
	waiting := map[uint32]bool{}
	add := func(m netlink.Message, flags netlink.HeaderFlags) error {
		s.seq++
		m.Header.Flags |= netlink.Request | flags
		m.Header.Sequence, m.Header.Length = s.seq, uint32(unix.SizeofNlMsghdr+len(m.Data))
		for len(m.Data)%unix.NLMSG_ALIGNTO != 0 {
			m.Data = append(m.Data, 0)
		}
		m.Header.Length = uint32(unix.SizeofNlMsghdr + len(m.Data))
		b, err := m.MarshalBinary()
		out = append(out, b...)
		return err
	}
	err := add(batch(unix.NFNL_MSG_BATCH_BEGIN), 0)
	for _, m := range messages {
		err = errors.Join(err, add(m, netlink.Acknowledge))
		waiting[s.seq] = true
	}
	if err = errors.Join(err, add(batch(unix.NFNL_MSG_BATCH_END), 0)); err != nil {
		return err
	}
	if err := unix.Sendto(s.fd, out, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send to nf_tables: %w", err)
	}
	return s.answers(waiting)
}

// answers reads until every message in waiting has been answered, or one with an error.
func (s *tableSocket) answers(waiting map[uint32]bool) error {
	buf := make([]byte, 64<<10)
	for deadline := time.Now().Add(nfTablesTimeout); len(waiting) > 0; {
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("nf_tables does not answer: %w", unix.ETIMEDOUT)
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		n, _, err := unix.Recvfrom(s.fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		all, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return err
		}
		for _, m := range all {
			if m.Header.Type != unix.NLMSG_ERROR || len(m.Data) < 4 || !waiting[m.Header.Seq] {
				continue
			}
			if code := int32(binary.NativeEndian.Uint32(m.Data)); code != 0 {
				return unix.Errno(-code)
			}
			delete(waiting, m.Header.Seq)
		}
	}
	return nil
}

// drain throws away what nobody waits for any more, such as answers to an earlier process.
func (s *tableSocket) drain() {
	var b [1]byte
	for {
		_, _, err := unix.Recvfrom(s.fd, b[:], unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

// close gives the descriptor back. With the last one the kernel removes the table.
func (s *tableSocket) close() { s.shut.Do(func() { _ = unix.Close(s.fd) }) }

// isTableSocket says whether fd can be one, of the current network namespace.
func isTableSocket(fd int) error {
	name, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	if a, ok := name.(*unix.SockaddrNetlink); !ok || a.Pid == 0 {
		return errors.New("it is no netlink socket with a port number")
	}
	if p, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil || p != unix.NETLINK_NETFILTER {
		return fmt.Errorf("its protocol is %d (%w)", p, err)
	}
	return nil
}
