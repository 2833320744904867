package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/mdlayher/genetlink"
	mdlayher "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"weft/tunnel/nlattr"
)

// Forwarding is the kernel's name (netdev-features) of what has GRO join UDP datagrams that no socket of the
// device's namespace asks for. It is since Linux 5.12.
const Forwarding = "rx-udp-gro-forwarding"

// GRO is the kernel's name of what joins arriving segments.
const GRO = "rx-gro"

// Features are the names of the features that are active on each of the links with those numbers, as ethtool
// -k has them (net/ethtool/common.c). It takes Linux 5.7. The error of a link that does not exist wraps
// ErrNoLink.
func (k *Kernel) Features(links ...int) (active []map[string]bool, err error) {
	err = k.ethtool(func(ask ethtoolAsk) error {
		for _, link := range links {
			answer, err := ask(unix.ETHTOOL_MSG_FEATURES_GET, 0, link, 0, nil)
			if errors.Is(err, unix.ENODEV) {
				err = ErrNoLink
			}
			if err != nil {
				return fmt.Errorf("features of link %d: %w", link, err)
			}
			active = append(active, activeFeatures(answer))
		}
		return nil
	})
	return active, err
}

// Feature says whether a feature of a link is on. The error of a link that does not exist wraps ErrNoLink. A
// feature unknown to the kernel is off.
func (k *Kernel) Feature(link int, feature string) (on bool, err error) {
	active, err := k.Features(link)
	if err != nil {
		return false, err
	}
	return active[0][feature], nil
}

// errFeatureStays says what a kernel does not: it answers that all is well, and a feature is as it was.
var errFeatureStays = errors.New("it stays as it was: the driver, or another feature, asks for that")

// SetFeature switches a feature of a link, as ethtool -K does. The error is that of Feature, or wraps
// unix.EPERM without CAP_NET_ADMIN.
func (k *Kernel) SetFeature(link int, feature string, on bool) error {
	wanted := func(a *mdlayher.AttributeEncoder) {
		a.Nested(unix.ETHTOOL_A_FEATURES_WANTED, func(a *mdlayher.AttributeEncoder) error {
			a.Nested(unix.ETHTOOL_A_BITSET_BITS, func(a *mdlayher.AttributeEncoder) error {
				a.Nested(unix.ETHTOOL_A_BITSET_BITS_BIT, func(a *mdlayher.AttributeEncoder) error {
					a.String(unix.ETHTOOL_A_BITSET_BIT_NAME, feature)
					a.Flag(unix.ETHTOOL_A_BITSET_BIT_VALUE, on)
					return nil
				})
				return nil
			})
			return nil
		})
	}
	err := k.ethtool(func(ask ethtoolAsk) error {
		_, err := ask(unix.ETHTOOL_MSG_FEATURES_SET, mdlayher.Acknowledge, link, unix.ETHTOOL_FLAG_OMIT_REPLY,
			wanted)
		return err
	})
	if err == nil {
		var is bool
		if is, err = k.Feature(link, feature); err == nil && is != on {
			err = errFeatureStays
		}
	}
	return Wrap(fmt.Sprintf("%s of link %d", feature, link), err)
}

// ethtoolAsk sends one request about a link, with the attributes that add adds, and returns those of the
// first answer.
type ethtoolAsk func(command uint8, flags mdlayher.HeaderFlags, link int, header uint32,
	add func(*mdlayher.AttributeEncoder)) ([]byte, error)

// ethtool has use speak ethtool's generic netlink (linux/ethtool_netlink.h).
func (k *Kernel) ethtool(use func(ethtoolAsk) error) error {
	return k.Do(func() error {
		conn, err := genetlink.Dial(nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		family, err := conn.GetFamily(unix.ETHTOOL_GENL_NAME)
		if err != nil {
			return fmt.Errorf("ethtool's netlink (CONFIG_ETHTOOL_NETLINK): %w", err)
		}
		return use(func(command uint8, flags mdlayher.HeaderFlags, link int, header uint32,
			add func(*mdlayher.AttributeEncoder)) ([]byte, error) {
			a := mdlayher.NewAttributeEncoder()
			// The header's number is the same in all of ethtool's messages.
			a.Nested(unix.ETHTOOL_A_FEATURES_HEADER, func(a *mdlayher.AttributeEncoder) error {
				a.Uint32(unix.ETHTOOL_A_HEADER_DEV_INDEX, uint32(link))
				a.Uint32(unix.ETHTOOL_A_HEADER_FLAGS, header)
				return nil
			})
			if add != nil {
				add(a)
			}
			data, err := a.Encode()
			if err != nil {
				return nil, err
			}
			answers, err := conn.Execute(genetlink.Message{
				Header: genetlink.Header{Command: command, Version: unix.ETHTOOL_GENL_VERSION}, Data: data,
			}, family.ID, mdlayher.Request|flags)
			if err != nil || len(answers) == 0 {
				return nil, err
			}
			return answers[0].Data, nil
		})
	})
}

// activeFeatures reads the active features of an ETHTOOL_MSG_FEATURES_GET_REPLY, which are a list of names.
func activeFeatures(message []byte) map[string]bool {
	active := map[string]bool{}
	bits := nlattr.Find(nlattr.Find(message, unix.ETHTOOL_A_FEATURES_ACTIVE), unix.ETHTOOL_A_BITSET_BITS)
	nlattr.Each(bits, func(_ uint16, bit []byte) bool {
		active[unix.ByteSliceToString(nlattr.Find(bit, unix.ETHTOOL_A_BITSET_BIT_NAME))] = true
		return true
	})
	return active
}

// Place names the kernel's network namespace in this boot: another boot, or another namespace, has another
// place.
func (k *Kernel) Place() (place string, err error) {
	err = k.Do(func() error {
		boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return err
		}
		ns, err := os.Readlink("/proc/thread-self/ns/net")
		place = strings.TrimSpace(string(boot)) + " " + ns
		return err
	})
	return place, err
}
