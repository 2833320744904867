package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Forwarding is the kernel's name (netdev-features) of what has GRO join UDP datagrams that no socket of the
// device's namespace asks for. It is since Linux 5.12.
const Forwarding = "rx-udp-gro-forwarding"

// GRO is the kernel's name of what joins arriving segments.
const GRO = "rx-gro"

// Feature says whether a feature of a link is on. The error of a link that does not exist wraps ErrNoLink. What the kernel
// does not know is off.
func (k *Kernel) Feature(link int, feature string) (on bool, err error) {
	active, err := k.Features(link)
	if err != nil {
		return false, err
	}
	return active[0][feature], nil
}

// errFeatureStays says what a kernel does not: it answers that all is well, and a feature is as it was.
var errFeatureStays = errors.New("it stays as it was: the driver, or another feature, asks for that")

// SetFeature switches a feature of a link, as ethtool -K does. The error is that of Feature, or wraps unix.EPERM without
// CAP_NET_ADMIN.
func (k *Kernel) SetFeature(link int, feature string, on bool) error {
	err := k.Do(func() error {
		f, err := ethtoolFamily()
		if err != nil {
			return err
		}
		req := nl.NewNetlinkRequest(f.id, unix.NLM_F_ACK)
		req.AddData(genlHeader{unix.ETHTOOL_MSG_FEATURES_SET, ethtoolVersion})
		head := nl.NewRtAttr(unix.NLA_F_NESTED|unix.ETHTOOL_A_FEATURES_HEADER, nil)
		head.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(link)))
		head.AddRtAttr(unix.ETHTOOL_A_HEADER_FLAGS, nl.Uint32Attr(unix.ETHTOOL_FLAG_OMIT_REPLY))
		req.AddData(head)
		wanted := nl.NewRtAttr(unix.NLA_F_NESTED|unix.ETHTOOL_A_FEATURES_WANTED, nil)
		bit := wanted.AddRtAttr(unix.NLA_F_NESTED|unix.ETHTOOL_A_BITSET_BITS, nil).
			AddRtAttr(unix.NLA_F_NESTED|unix.ETHTOOL_A_BITSET_BITS_BIT, nil)
		bit.AddRtAttr(unix.ETHTOOL_A_BITSET_BIT_NAME, nl.ZeroTerminated(feature))
		if on {
			bit.AddRtAttr(unix.ETHTOOL_A_BITSET_BIT_VALUE, nil)
		}
		req.AddData(wanted)
		_, err = req.Execute(unix.NETLINK_GENERIC, 0)
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

// Place names the kernel's network namespace in this boot: another boot, or another namespace, has another place.
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
