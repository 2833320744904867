package kernel

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft/routing/internal/notify"
	"weft/tunnel/nlattr"
)

// Of ethtool's generic netlink (linux/ethtool_netlink.h), which has features since Linux 5.7.
const (
	ethtoolName    = "ethtool" // ETHTOOL_GENL_NAME
	ethtoolVersion = 1
	ethtoolMonitor = "monitor" // ETHTOOL_MCGRP_MONITOR_NAME
)

// ethtoolFamily asks for the number of ethtool's netlink and of its groups.
func ethtoolFamily() (genlFamily, error) {
	f, err := familyOf(ethtoolName)
	if err != nil {
		return f, fmt.Errorf("ethtool's netlink (CONFIG_ETHTOOL_NETLINK): %w", err)
	}
	return f, nil
}

// Features are the names of the features that are active on each of the links with those numbers, as ethtool -k has them
// (net/ethtool/common.c). The error of a link that does not exist wraps ErrNoLink.
func (k *Kernel) Features(links ...int) (active []map[string]bool, err error) {
	err = k.Do(func() error {
		f, err := ethtoolFamily()
		if err != nil {
			return err
		}
		for _, link := range links {
			req := nl.NewNetlinkRequest(f.id, 0)
			req.AddData(genlHeader{unix.ETHTOOL_MSG_FEATURES_GET, ethtoolVersion})
			head := nl.NewRtAttr(unix.NLA_F_NESTED|unix.ETHTOOL_A_FEATURES_HEADER, nil)
			head.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(link)))
			req.AddData(head)
			msgs, err := req.Execute(unix.NETLINK_GENERIC, 0)
			switch {
			case errors.Is(err, unix.ENODEV):
				return fmt.Errorf("features of link %d: %w", link, ErrNoLink)
			case err != nil:
				return fmt.Errorf("features of link %d: %w", link, err)
			case len(msgs) != 1 || len(msgs[0]) < nl.SizeofGenlmsg:
				return fmt.Errorf("features of link %d: %d answers", link, len(msgs))
			}
			active = append(active, parseFeatures(msgs[0][nl.SizeofGenlmsg:]))
		}
		return nil
	})
	return active, err
}

// parseFeatures reads the active features of an ETHTOOL_MSG_FEATURES_GET_REPLY, which are a list of names.
func parseFeatures(attrs []byte) map[string]bool {
	active := map[string]bool{}
	bits := nlattr.Find(nlattr.Find(attrs, unix.ETHTOOL_A_FEATURES_ACTIVE), unix.ETHTOOL_A_BITSET_BITS)
	nlattr.Each(bits, func(kind uint16, bit []byte) bool {
		if kind == unix.ETHTOOL_A_BITSET_BITS_BIT {
			active[unix.ByteSliceToString(nlattr.Find(bit, unix.ETHTOOL_A_BITSET_BIT_NAME))] = true
		}
		return true
	})
	return active
}

// FeatureMonitor is one subscription to what ethtool notifies of in a namespace.
type FeatureMonitor struct{ *notify.Socket }

// SubscribeFeatures opens the subscription; the caller closes it.
func (k *Kernel) SubscribeFeatures() (*FeatureMonitor, error) {
	m := &FeatureMonitor{}
	err := k.Do(func() error {
		f, err := ethtoolFamily()
		if err != nil {
			return err
		}
		group, ok := f.groups[ethtoolMonitor]
		if !ok {
			return fmt.Errorf("ethtool's netlink has no group %s", ethtoolMonitor)
		}
		if m.Socket, err = notify.Open(unix.NETLINK_GENERIC); err != nil {
			return err
		}
		return m.Join(group)
	})
	if err != nil {
		if m.Socket != nil {
			m.Close()
		}
		return nil, fmt.Errorf("subscribe to changes of features: %w", err)
	}
	return m, nil
}

// Follow calls changed with the number of each link whose features changed, and with 0 when messages were lost, until
// Close. changed must not block.
func (m *FeatureMonitor) Follow(changed func(link int)) error {
	return m.Run(func(msgs []syscall.NetlinkMessage) {
		if len(msgs) == 0 {
			changed(0)
		}
		for _, msg := range msgs {
			if link := changedFeatures(msg.Data); link != 0 {
				changed(link)
			}
		}
	})
}

// changedFeatures is the number of the link that an ETHTOOL_MSG_FEATURES_NTF is about; 0 for any other message.
func changedFeatures(b []byte) int {
	if len(b) < nl.SizeofGenlmsg || nl.DeserializeGenlmsg(b).Command != unix.ETHTOOL_MSG_FEATURES_NTF {
		return 0
	}
	index := nlattr.Find(nlattr.Find(b[nl.SizeofGenlmsg:], unix.ETHTOOL_A_FEATURES_HEADER), unix.ETHTOOL_A_HEADER_DEV_INDEX)
	if len(index) != 4 {
		return 0
	}
	return int(nl.NativeEndian().Uint32(index))
}

// LinkKind is what a link is made of.
type LinkKind struct {
	Index int
	Name  string
	// Kind is as in ip -d link: vlan, macvlan, bond, bridge, veth; "device" for hardware, and what has none.
	Kind string
	// Parent is the link that it stands on, Master the one that it is a port of, by number; 0 for none. A Parent in another
	// namespace is not one.
	Parent, Master int
	Up             bool
}

// LinkKinds lists all links.
func (k *Kernel) LinkKinds() ([]LinkKind, error) {
	ls, err := k.Links()
	if err != nil {
		return nil, err
	}
	kinds := make([]LinkKind, len(ls))
	for i, l := range ls {
		kinds[i] = kindOf(l)
	}
	return kinds, nil
}

// LinkKind looks up one link by number. The error wraps ErrNoLink if there is none.
func (k *Kernel) LinkKind(index int) (LinkKind, error) {
	l, err := k.h.LinkByIndex(index)
	if err != nil {
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			err = ErrNoLink
		}
		return LinkKind{}, fmt.Errorf("link %d: %w", index, err)
	}
	return kindOf(l), nil
}

func kindOf(l netlink.Link) LinkKind {
	a := l.Attrs()
	kind := LinkKind{Index: a.Index, Name: a.Name, Kind: l.Type(), Parent: a.ParentIndex, Master: a.MasterIndex, Up: a.RawFlags&unix.IFF_UP != 0}
	if a.NetNsID >= 0 || kind.Kind == "veth" { // the other end of a veth is no parent
		kind.Parent = 0
	}
	return kind
}
