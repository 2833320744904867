package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"weft/encap"
)

// nfTablesTimeout bounds one answer of nf_tables: a commit waits for RCU.
const nfTablesTimeout = 5 * time.Second

// tableOwner is NFT_TABLE_F_OWNER of linux/netfilter/nf_tables.h (Linux 5.12): only the
// socket that made the table can change it, and the kernel removes it with the socket.
const tableOwner = 0x2

// Ingress keeps the datagrams that path raw reads as frames out of the IP stack, which would
// deliver them to the UDP socket as well. It is a rule at the link's ingress, behind the place
// where packet sockets see a frame, in an nf_tables table that the kernel removes when this
// process ends, however it ends.
type Ingress struct {
	conn  *nftables.Conn
	raw   *netlink.Conn // conn's socket, which owns the table
	table *nftables.Table
	chain *nftables.Chain
}

// ingressChain is the name of the table's only chain.
const ingressChain = "ingress"

// ingressTables are the names that a socket's table may have. The second one is for a successor, while the
// one before it still has its own.
func ingressTables(local netip.AddrPort) [2]string {
	name := fmt.Sprintf(ingressPrefix+"%s-%d", strings.ReplaceAll(local.Addr().String(), ":", "-"), local.Port())
	return [2]string{name, name + "b"}
}

// OpenIngress drops, at the ingress of link, what the packet socket for local takes.
// Needs CAP_NET_ADMIN in the network namespace's user namespace. The caller closes it.
func (k *Kernel) OpenIngress(link string, local netip.AddrPort) (*Ingress, error) {
	i := &Ingress{}
	if err := k.Do(i.connect); err != nil {
		return nil, fmt.Errorf("nf_tables (CONFIG_NF_TABLES): %w", err)
	}
	var err error
	for _, name := range ingressTables(local) {
		// The kernel refuses one that another socket owns with EPERM.
		if err = i.own(name); !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EPERM) {
			break
		}
	}
	if err != nil {
		i.Leave()
		return nil, fmt.Errorf("nf_tables table of family netdev with an owner "+
			"(CONFIG_NF_TABLES_NETDEV, Linux 5.12): %w", err)
	}
	i.chain = i.conn.AddChain(&nftables.Chain{
		Name: ingressChain, Table: i.table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookIngress, Priority: nftables.ChainPriorityRef(0), Device: link,
	})
	i.conn.AddRule(&nftables.Rule{
		Table: i.table, Chain: i.chain, Exprs: ingressRule(local),
		UserData: userdata.AppendString(nil, userdata.TypeComment, Alias),
	})
	if err := i.conn.Flush(); err != nil {
		err = fmt.Errorf("nf_tables rule at the ingress of %s (CONFIG_NETFILTER_INGRESS): %w", link, err)
		return nil, errors.Join(err, i.Close())
	}
	if err := i.Check(); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

// connect opens the socket that is to own the table. Of two owners, one after the other, none has the port ID
// of the one before: the kernel frees the ID of a socket first and removes its tables a moment later, by
// the ID, and so it would remove the next one's, too. The ID that it gives a process' first socket is the
// process' own; all others are drawn.
func (i *Ingress) connect() error {
	open := func() (err error) {
		i.conn, err = nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
			i.raw = c
			return nil
		}))
		return err
	}
	if err := open(); err != nil {
		return err
	}
	name, _ := unix.Getsockname(i.Owner())
	if at, ok := name.(*unix.SockaddrNetlink); !ok || at.Pid != uint32(os.Getpid()) {
		return nil
	}
	first := i.conn // it owns nothing, and keeps the ID until there is another
	err := open()
	_ = first.CloseLasting()
	return err
}

// own makes a table of that name, which belongs to i's socket. The library's AddTable has no flags.
func (i *Ingress) own(name string) error {
	attrs, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_TABLE_NAME, Data: append([]byte(name), 0)},
		{Type: unix.NFTA_TABLE_FLAGS, Data: binary.BigEndian.AppendUint32(nil, tableOwner)},
	})
	if err != nil {
		return err
	}
	message := func(kind int, flags netlink.HeaderFlags, family nftables.TableFamily, resource uint16,
		b []byte) netlink.Message {
		head := binary.BigEndian.AppendUint16([]byte{byte(family), unix.NFNETLINK_V0}, resource) // struct nfgenmsg
		return netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | flags},
			Data:   append(head, b...),
		}
	}
	const transaction, table = unix.NFNL_SUBSYS_NFTABLES, unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE
	messages := []netlink.Message{
		message(unix.NFNL_MSG_BATCH_BEGIN, 0, nftables.TableFamilyUnspecified, transaction, nil),
		message(table, netlink.Acknowledge|netlink.Create|netlink.Excl, nftables.TableFamilyNetdev, 0, attrs),
		message(unix.NFNL_MSG_BATCH_END, 0, nftables.TableFamilyUnspecified, transaction, nil),
	}
	err = i.raw.SetDeadline(time.Now().Add(nfTablesTimeout))
	if err == nil {
		_, err = i.raw.SendMessages(messages)
	}
	if err == nil {
		_, err = i.raw.Receive()
	}
	i.table = &nftables.Table{Name: name, Family: nftables.TableFamilyNetdev}
	return err
}

// Owner is the descriptor to which the table belongs. It is i's; the table stays while anybody has a
// duplicate.
func (i *Ingress) Owner() (fd int) {
	if raw, err := i.raw.SyscallConn(); err == nil {
		_ = raw.Control(func(n uintptr) { fd = int(n) })
	}
	return fd
}

// Check reports whether the rule is in place: the kernel may remove a chain together with its device.
func (i *Ingress) Check() error {
	if err := i.raw.SetDeadline(time.Now().Add(nfTablesTimeout)); err != nil {
		return err
	}
	rules, err := i.conn.GetRules(i.table, i.chain)
	if err != nil {
		return fmt.Errorf("list nf_tables table %s: %w", i.table.Name, err)
	}
	if !slices.ContainsFunc(rules, isIngressRule) {
		return fmt.Errorf("nf_tables table %s has lost its rule", i.table.Name)
	}
	return nil
}

// isIngressRule reports whether a rule of a table of ours is ours.
func isIngressRule(r *nftables.Rule) bool {
	comment, _ := userdata.GetString(r.UserData, userdata.TypeComment)
	return comment == Alias
}

// Close removes the table. The kernel would do so with the socket, but a child between fork(2) and
// execve(2) keeps that open for a moment, in which no other can make a table of this name.
func (i *Ingress) Close() error {
	err := i.raw.SetDeadline(time.Now().Add(nfTablesTimeout))
	if err == nil {
		i.conn.DelTable(i.table)
		err = i.conn.Flush()
	}
	if errors.Is(err, unix.ENOENT) {
		err = nil // somebody has flushed the tables
	}
	i.Leave()
	return Wrap("remove nf_tables table "+i.table.Name, err)
}

// Leave is Close for a table of which others have the owner's descriptor: it stays with them.
func (i *Ingress) Leave() {
	// The kernel takes some 15 ms to close a socket that owned a table. Nobody has to wait for that: the
	// table is gone.
	go func() { _ = i.conn.CloseLasting() }()
}

// ingressRule is the counterpart of the packet socket's filter: it drops exactly what that filter
// takes. Neither matches a frame that is too short for one of the comparisons.
func ingressRule(local netip.AddrPort) []expr.Any {
	const register = 1
	load := func(base expr.PayloadBase, offset, size uint32) expr.Any {
		return &expr.Payload{DestRegister: register, Base: base, Offset: offset, Len: size}
	}
	is := func(value ...byte) expr.Any {
		return &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: value}
	}
	port := func(offset uint32) []expr.Any {
		return []expr.Any{load(expr.PayloadBaseNetworkHeader, offset+2, 2),
			is(binary.BigEndian.AppendUint16(nil, local.Port())...)}
	}
	masked := func(mask ...byte) expr.Any {
		return &expr.Bitwise{SourceRegister: register, DestRegister: register, Len: uint32(len(mask)), Mask: mask,
			Xor: make([]byte, len(mask))}
	}
	network := func(offset, size uint32) expr.Any { return load(expr.PayloadBaseNetworkHeader, offset, size) }
	// A VLAN tag that is beside the frame is put back for this comparison
	// (nft_payload_copy_vlan), so tagged frames differ.
	etherType := func(v uint16) []expr.Any {
		return []expr.Any{load(expr.PayloadBaseLLHeader, 12, 2), is(binary.BigEndian.AppendUint16(nil, v)...)}
	}

	rule := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPKTTYPE, Register: register}, is(unix.PACKET_HOST),
	}
	if a := local.Addr(); a.Is4() {
		rule = append(rule, etherType(encap.EtherTypeIPv4)...)
		rule = append(rule, network(0, 1), is(0x45), network(6, 2), masked(0x3f, 0xff), is(0, 0),
			network(9, 1), is(unix.IPPROTO_UDP), network(16, 4), is(a.AsSlice()...))
		rule = append(rule, port(encap.IPv4Len)...)
	} else {
		rule = append(rule, etherType(encap.EtherTypeIPv6)...)
		rule = append(rule, network(0, 1), masked(0xf0), is(0x60),
			network(6, 1), is(unix.IPPROTO_UDP), network(24, 16), is(a.AsSlice()...))
		rule = append(rule, port(encap.IPv6Len)...)
	}
	return append(rule, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})
}
