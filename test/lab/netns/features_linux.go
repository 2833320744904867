package netns

import (
	"errors"
	"fmt"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"weft/tunnel/nlattr"
)

// Features returns whether each feature of a device is on. Their names are those that ethtool -k has for
// single features, such as tx-udp-segmentation. One that the kernel does not know is missing.
func (n *Namespace) Features(device string) (map[string]bool, error) {
	answer, err := n.ethtool(unix.ETHTOOL_MSG_FEATURES_GET, 0, device, nil)
	features := map[string]bool{}
	// The first set lists all that the kernel knows, and the second those that are on.
	for _, set := range []uint16{unix.ETHTOOL_A_FEATURES_HW, unix.ETHTOOL_A_FEATURES_ACTIVE} {
		bits := nlattr.Find(nlattr.Find(answer, set), unix.ETHTOOL_A_BITSET_BITS)
		nlattr.Each(bits, func(_ uint16, bit []byte) bool {
			name := unix.ByteSliceToString(nlattr.Find(bit, unix.ETHTOOL_A_BITSET_BIT_NAME))
			features[name] = set == unix.ETHTOOL_A_FEATURES_ACTIVE
			return true
		})
	}
	return features, err
}

// SetFeatures turns features of a device on or off, as ethtool -K does. It is an error if the device does not
// change one of them; the others are changed nevertheless.
func (n *Namespace) SetFeatures(device string, want map[string]bool) error {
	_, err := n.ethtool(unix.ETHTOOL_MSG_FEATURES_SET, unix.ETHTOOL_FLAG_OMIT_REPLY, device,
		func(a *netlink.AttributeEncoder) error {
			a.Nested(unix.ETHTOOL_A_BITSET_BITS, func(a *netlink.AttributeEncoder) error {
				for name, on := range want {
					a.Nested(unix.ETHTOOL_A_BITSET_BITS_BIT, func(a *netlink.AttributeEncoder) error {
						a.String(unix.ETHTOOL_A_BITSET_BIT_NAME, name)
						a.Flag(unix.ETHTOOL_A_BITSET_BIT_VALUE, on)
						return nil
					})
				}
				return nil
			})
			return nil
		})
	if err != nil {
		return err
	}
	got, err := n.Features(device)
	for name, on := range want {
		if got[name] != on {
			err = errors.Join(err, fmt.Errorf("%s: %s of %s is not to be turned to %v", n.name, name, device, on))
		}
	}
	return err
}

// ethtool sends one request about a device's features and returns the attributes of what answers it: of the
// reply, or of an acknowledgement, which has none that matter.
func (n *Namespace) ethtool(command uint8, flags uint32, device string,
	wanted func(*netlink.AttributeEncoder) error) (answer []byte, err error) {
	a := netlink.NewAttributeEncoder()
	a.Nested(unix.ETHTOOL_A_FEATURES_HEADER, func(a *netlink.AttributeEncoder) error {
		a.String(unix.ETHTOOL_A_HEADER_DEV_NAME, device)
		a.Uint32(unix.ETHTOOL_A_HEADER_FLAGS, flags)
		return nil
	})
	how := netlink.Request
	if wanted != nil {
		a.Nested(unix.ETHTOOL_A_FEATURES_WANTED, wanted)
		how |= netlink.Acknowledge
	}
	request := genetlink.Message{Header: genetlink.Header{Command: command, Version: unix.ETHTOOL_GENL_VERSION}}
	if request.Data, err = a.Encode(); err != nil {
		return nil, err
	}
	err = n.Do(func() error {
		conn, err := genetlink.Dial(nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		family, err := conn.GetFamily(unix.ETHTOOL_GENL_NAME)
		if err != nil {
			return fmt.Errorf("find ethtool's netlink family (Linux 5.6, CONFIG_ETHTOOL_NETLINK): %w", err)
		}
		messages, err := conn.Execute(request, family.ID, how)
		if err == nil && len(messages) > 0 {
			answer = messages[0].Data
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: features of %s: %w", n.name, device, err)
	}
	return answer, nil
}
