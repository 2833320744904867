package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
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
	conn  *nftables.Conn // to look, with a socket of its own: those who share the owner's do not read each other's answers
	raw   *netlink.Conn  // conn's socket
	owner *tableSocket   // to change
	table *nftables.Table
	chain *nftables.Chain
}

// ingressChain is the name of the table's only chain.
const ingressChain = "ingress"

// ingressTable is the table's name: one for each socket.
func ingressTable(local netip.AddrPort) string {
	return fmt.Sprintf(ingressPrefix+"%s-%d", strings.ReplaceAll(local.Addr().String(), ":", "-"), local.Port())
}

// OpenIngress drops, at the ingress of link, what the packet socket for local takes.
// Needs CAP_NET_ADMIN in the network namespace's user namespace. The caller closes it.
func (k *Kernel) OpenIngress(link string, local netip.AddrPort) (*Ingress, error) {
	var owner *tableSocket
	err := k.Do(func() (err error) { owner, err = newTableSocket(); return err })
	if err != nil {
		return nil, fmt.Errorf("nf_tables (CONFIG_NF_TABLES): %w", err)
	}
	i, err := k.ingress(owner, local)
	if err == nil {
		err = i.install(link, local)
	}
	if err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

// TakeIngress is the Ingress for local that somebody else has opened, of which owner is the descriptor (Ingress.Owner). It takes owner over,
// also on error. It changes nothing, and sends nothing by owner, which another process may use as yet.
func (k *Kernel) TakeIngress(owner int, local netip.AddrPort) (*Ingress, error) {
	s := &tableSocket{fd: owner}
	err := isTableSocket(owner)
	if err == nil {
		err = unix.SetNonblock(owner, true)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("the owner of nf_tables table %s that was kept: %w", ingressTable(local), err)
	}
	i, err := k.ingress(s, local)
	if err == nil {
		i.chain = &nftables.Chain{Name: ingressChain, Table: i.table}
		err = i.Check()
	}
	if err != nil {
		i.Leave()
		return nil, err
	}
	return i, nil
}

// ingress is an Ingress without a table. It takes owner over.
func (k *Kernel) ingress(owner *tableSocket, local netip.AddrPort) (*Ingress, error) {
	i := &Ingress{owner: owner, table: &nftables.Table{Name: ingressTable(local), Family: nftables.TableFamilyNetdev}}
	err := k.Do(func() (err error) {
		i.conn, err = nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
			i.raw = c
			return nil
		}))
		return err
	})
	if err != nil {
		return i, fmt.Errorf("nf_tables (CONFIG_NF_TABLES): %w", err)
	}
	return i, nil
}

// Owner is the descriptor to which the table belongs. It is i's; who has a duplicate keeps the table.
func (i *Ingress) Owner() int { return i.owner.fd }

func (i *Ingress) install(link string, local netip.AddrPort) error {
	name := func(kind uint16, s string) netlink.Attribute {
		return netlink.Attribute{Type: kind, Data: append([]byte(s), 0)}
	}
	number := func(kind uint16, v uint32) netlink.Attribute {
		return netlink.Attribute{Type: kind, Data: binary.BigEndian.AppendUint32(nil, v)}
	}
	table, err := tableMessage(unix.NFT_MSG_NEWTABLE, netlink.Create|netlink.Excl, []netlink.Attribute{
		name(unix.NFTA_TABLE_NAME, i.table.Name), number(unix.NFTA_TABLE_FLAGS, tableOwner),
	})
	if err == nil {
		err = i.owner.commit(table)
	}
	if err != nil {
		return fmt.Errorf("nf_tables table of family netdev with an owner (CONFIG_NF_TABLES_NETDEV, Linux 5.12): %w", err)
	}
	i.chain = &nftables.Chain{Name: ingressChain, Table: i.table}
	hook, hookErr := netlink.MarshalAttributes([]netlink.Attribute{
		number(unix.NFTA_HOOK_HOOKNUM, unix.NF_NETDEV_INGRESS), number(unix.NFTA_HOOK_PRIORITY, 0), name(unix.NFTA_HOOK_DEV, link),
	})
	chain, chainErr := tableMessage(unix.NFT_MSG_NEWCHAIN, netlink.Create, []netlink.Attribute{
		name(unix.NFTA_CHAIN_TABLE, i.table.Name), name(unix.NFTA_CHAIN_NAME, ingressChain),
		{Type: unix.NLA_F_NESTED | unix.NFTA_CHAIN_HOOK, Data: hook}, name(unix.NFTA_CHAIN_TYPE, string(nftables.ChainTypeFilter)),
	})
	exprs, exprsErr := marshalExprs(ingressRule(local))
	rule, ruleErr := tableMessage(unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append, []netlink.Attribute{
		name(unix.NFTA_RULE_TABLE, i.table.Name), name(unix.NFTA_RULE_CHAIN, ingressChain),
		{Type: unix.NLA_F_NESTED | unix.NFTA_RULE_EXPRESSIONS, Data: exprs},
		{Type: unix.NFTA_RULE_USERDATA, Data: userdata.AppendString(nil, userdata.TypeComment, Alias)},
	})
	if err = errors.Join(hookErr, chainErr, exprsErr, ruleErr); err == nil {
		err = i.owner.commit(chain, rule)
	}
	if err != nil {
		return fmt.Errorf("nf_tables rule at the ingress of %s (CONFIG_NETFILTER_INGRESS): %w", link, err)
	}
	return i.Check()
}

// marshalExprs is the list of a rule's expressions.
func marshalExprs(all []expr.Any) ([]byte, error) {
	var list []netlink.Attribute
	for _, e := range all {
		b, err := expr.Marshal(byte(nftables.TableFamilyNetdev), e)
		if err != nil {
			return nil, err
		}
		list = append(list, netlink.Attribute{Type: unix.NLA_F_NESTED | unix.NFTA_LIST_ELEM, Data: b})
	}
	return netlink.MarshalAttributes(list)
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
	var err error
	if i.chain != nil {
		var m netlink.Message
		m, err = tableMessage(unix.NFT_MSG_DELTABLE, 0, []netlink.Attribute{{Type: unix.NFTA_TABLE_NAME, Data: append([]byte(i.table.Name), 0)}})
		if err == nil {
			err = i.owner.commit(m)
		}
		if errors.Is(err, unix.ENOENT) {
			err = nil // somebody has flushed the tables
		}
	}
	i.Leave()
	return Wrap("remove nf_tables table "+i.table.Name, err)
}

// Leave is Close for a table of which others have the owner's descriptor: it stays with them.
func (i *Ingress) Leave() {
	// The kernel takes some 15 ms to close a socket that owned a table. Nobody has to wait for that: the
	// table is gone.
	go func() {
		i.owner.close()
		if i.conn != nil {
			_ = i.conn.CloseLasting()
		}
	}()
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
		return []expr.Any{load(expr.PayloadBaseNetworkHeader, offset+2, 2), is(binary.BigEndian.AppendUint16(nil, local.Port())...)}
	}
	masked := func(mask ...byte) expr.Any {
		return &expr.Bitwise{SourceRegister: register, DestRegister: register, Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask))}
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
