package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/safchain/ethtool"
)

// The kernel's names (netdev-features) of features. Forwarding, since Linux 5.12, has GRO join UDP datagrams
// that no socket of the device's namespace asks for. GRO joins arriving segments. TxChecksum completes
// checksums when a packet leaves.
const (
	Forwarding = "rx-udp-gro-forwarding"
	GRO        = "rx-gro"
	TxChecksum = "tx-checksum-ip-generic"
)

// Features says which features of each of the links with those numbers are on, by their names, as ethtool -k
// has them. The error of a link that does not exist wraps ErrNoLink.
func (k *Kernel) Features(links ...int) (on []map[string]bool, err error) {
	err = k.ethtool(links, func(e *ethtool.Ethtool, d Device) error {
		fs, err := e.Features(d.Name)
		on = append(on, fs)
		return err
	})
	return on, err
}

// errFeatureStays says what a kernel does not: it answers that all is well, and a feature is as it was.
var errFeatureStays = errors.New("it stays as it was: the driver, or another feature, asks for that")

// SetFeature switches a feature of a link, as ethtool -K does. The error wraps ErrNoLink if there is no such
// link, or unix.EPERM without CAP_NET_ADMIN.
func (k *Kernel) SetFeature(link int, feature string, on bool) error {
	err := k.ethtool([]int{link}, func(e *ethtool.Ethtool, d Device) error {
		if err := e.Change(d.Name, map[string]bool{feature: on}); err != nil {
			return err
		}
		is, err := e.Features(d.Name)
		if err == nil && is[feature] != on {
			err = errFeatureStays
		}
		return err
	})
	return Wrap(feature, err)
}

// ethtool has use speak to the drivers of links.
func (k *Kernel) ethtool(links []int, use func(*ethtool.Ethtool, Device) error) error {
	return k.Do(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		for _, link := range links {
			d, err := k.DeviceAt(link)
			if err != nil {
				return err
			}
			if err := use(e, d); err != nil {
				return fmt.Errorf("features of link %s: %w", d.Name, err)
			}
		}
		return nil
	})
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
