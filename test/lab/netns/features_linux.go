package netns

import (
	"errors"
	"fmt"

	"github.com/mdlayher/genetlink"
	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// typeMask is NLA_TYPE_MASK of netlink.h. It takes the flags for nesting and byte order out of an attribute's
// type.
const typeMask = 0x3fff

// Features returns whether each feature of a device is on. Their names are those that ethtool -k has for
// single features, such as tx-udp-segmentation. A feature that the device cannot have at all may be missing.
func (n *Namespace) Features(device string) (map[string]bool, error) {
	var features map[string]bool
	err := n.Do(func() error {
		message, err := askEthtool(unix.ETHTOOL_MSG_FEATURES_GET, 0, featuresHeader(device, 0))
		if err == nil {
			features, err = parseFeatures(message)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: features of %s: %w", n.name, device, err)
	}
	return features, nil
}

// SetFeatures turns features of a device on or off, as ethtool -K does. It is an error if the device does not
// change one of them; the others are changed nevertheless.
func (n *Namespace) SetFeatures(device string, want map[string]bool) error {
	err := n.Do(func() error {
		// The request has attributes within attributes, as netlink.h has them, with names and values of
		// linux/ethtool_netlink.h.
		set := nl.NewRtAttr(unix.ETHTOOL_A_FEATURES_WANTED|unix.NLA_F_NESTED, nil)
		bits := set.AddRtAttr(unix.ETHTOOL_A_BITSET_BITS|unix.NLA_F_NESTED, nil)
		for name, on := range want {
			bit := bits.AddRtAttr(unix.ETHTOOL_A_BITSET_BITS_BIT|unix.NLA_F_NESTED, nil)
			bit.AddRtAttr(unix.ETHTOOL_A_BITSET_BIT_NAME, nl.ZeroTerminated(name))
			if on {
				bit.AddRtAttr(unix.ETHTOOL_A_BITSET_BIT_VALUE, nil)
			}
		}
		_, err := askEthtool(unix.ETHTOOL_MSG_FEATURES_SET, mdlayher.Acknowledge,
			featuresHeader(device, unix.ETHTOOL_FLAG_OMIT_REPLY), set)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: set features of %s: %w", n.name, device, err)
	}
	got, err := n.Features(device)
	if err != nil {
		return err
	}
	var faults []error
	for name, on := range want {
		if got[name] != on {
			faults = append(faults, fmt.Errorf("%s: %s stays %s on %s", n.name, name,
				map[bool]string{true: "on", false: "off"}[got[name]], device))
		}
	}
	return errors.Join(faults...)
}

func featuresHeader(device string, flags uint32) *nl.RtAttr {
	header := nl.NewRtAttr(unix.ETHTOOL_A_FEATURES_HEADER|unix.NLA_F_NESTED, nil)
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_NAME, nl.ZeroTerminated(device))
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_FLAGS, nl.Uint32Attr(flags))
	return header
}

// askEthtool sends one request from the calling thread's namespace and returns the attributes of what answers
// it: of the reply, or of an acknowledgement, which has none that matter, if flags ask for one.
func askEthtool(command uint8, flags mdlayher.HeaderFlags, attributes ...*nl.RtAttr) ([]byte, error) {
	conn, err := genetlink.Dial(nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	family, err := conn.GetFamily(unix.ETHTOOL_GENL_NAME)
	if err != nil {
		return nil, fmt.Errorf("find ethtool's netlink family (Linux 5.6, CONFIG_ETHTOOL_NETLINK): %w", err)
	}
	request := genetlink.Message{Header: genetlink.Header{Command: command, Version: unix.ETHTOOL_GENL_VERSION}}
	for _, a := range attributes {
		request.Data = append(request.Data, a.Serialize()...)
	}
	messages, err := conn.Execute(request, family.ID, mdlayher.Request|flags)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	return messages[0].Data, nil
}

// parseFeatures reads from a features message which features are active. Those that are off are in the map
// too, so that they can be told from features that the kernel does not know.
func parseFeatures(message []byte) (map[string]bool, error) {
	features := map[string]bool{}
	err := eachAttribute(message, func(kind uint16, value []byte) error {
		if kind != unix.ETHTOOL_A_FEATURES_HW && kind != unix.ETHTOOL_A_FEATURES_ACTIVE {
			return nil
		}
		return eachBit(value, func(name string) {
			features[name] = kind == unix.ETHTOOL_A_FEATURES_ACTIVE || features[name]
		})
	})
	return features, err
}

// eachBit calls fn with the names of the bits that are set in a bitset.
func eachBit(set []byte, fn func(name string)) error {
	list := false // the set has no mask, so all bits that it lists are set
	return eachAttribute(set, func(kind uint16, value []byte) error {
		if kind == unix.ETHTOOL_A_BITSET_NOMASK {
			list = true
		}
		if kind != unix.ETHTOOL_A_BITSET_BITS {
			return nil
		}
		return eachAttribute(value, func(_ uint16, bit []byte) error {
			name, on := "", list
			err := eachAttribute(bit, func(kind uint16, value []byte) error {
				switch kind {
				case unix.ETHTOOL_A_BITSET_BIT_NAME:
					name = unix.ByteSliceToString(value)
				case unix.ETHTOOL_A_BITSET_BIT_VALUE:
					on = true
				}
				return nil
			})
			if on {
				fn(name)
			}
			return err
		})
	})
}

func eachAttribute(b []byte, fn func(kind uint16, value []byte) error) error {
	attributes, err := nl.ParseRouteAttr(b)
	if err != nil {
		return err
	}
	for _, a := range attributes {
		if err := fn(a.Attr.Type&typeMask, a.Value); err != nil {
			return err
		}
	}
	return nil
}
