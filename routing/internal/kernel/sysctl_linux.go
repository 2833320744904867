package kernel

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The IPv6 settings of our device. On a device of ours nothing may come from a
// router advertisement, which a pod could send (CVE-2020-10749), and a TUN between
// hosts has no use for a link-local address: mode 1 is IN6_ADDR_GEN_MODE_NONE of
// if_link.h.
const (
	acceptRA    = "accept_ra"
	addrGenMode = "addr_gen_mode"
	disableIPv6 = "disable_ipv6"
)

// SetIPv4 makes the IPv4 settings of a link what our devices need.
func (k *Kernel) SetIPv4(link string) error {
	dir := filepath.Join("/proc/sys/net/ipv4/conf", link)
	return k.Do(func() error {
		return errors.Join(WriteSetting(dir, acceptLocal, "1"), WriteSetting(dir, ignoreLinkDown, "0"))
	})
}

// SetIPv6 makes the IPv6 settings of a link what our devices need. Without IPv6 in
// the overlay, IPv6 is off on the link, so that the kernel sends none into the
// tunnel. A kernel without IPv6, and a link with an MTU too small for it, have no
// such files, which is no error if IPv6 is not wanted.
func (k *Kernel) SetIPv6(link string, ipv6 bool) error {
	dir, before := filepath.Join("/proc/sys/net/ipv6/conf", link), ""
	err := k.Do(func() error {
		off := "1"
		if ipv6 {
			off = "0"
		}
		before, _ = ReadSetting(dir, addrGenMode)
		return errors.Join(WriteSetting(dir, acceptRA, "0"), WriteSetting(dir, addrGenMode, "1"),
			WriteSetting(dir, ignoreLinkDown, "0"), WriteSetting(dir, disableIPv6, off))
	})
	switch {
	case !ipv6 && errors.Is(err, fs.ErrNotExist):
		return nil
	case !ipv6 || before == "1":
		return err
	}
	return errors.Join(err, k.delGenerated(link))
}

// delGenerated takes away the addresses that a link has generated. It does not switch IPv6 off and on, which
// does the same, since that takes away all else that a flanneld put on the link, and packets go by it.
func (k *Kernel) delGenerated(link string) error {
	d, err := k.Device(link)
	if err != nil {
		return err
	}
	addrs, err := k.linkAddrs(d.Index)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if a.Addr().IsLinkLocalUnicast() && a.Addr().Is6() {
			err = errors.Join(err, k.DelAddr(Addr{Link: link, Prefix: a}))
		}
	}
	return err
}

func ReadSetting(dir, name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(b)), err
}

// WriteSetting writes a value that differs from what is there.
func WriteSetting(dir, name, value string) error {
	have, err := ReadSetting(dir, name)
	if err == nil && have != value {
		err = os.WriteFile(filepath.Join(dir, name), []byte(value), 0)
	}
	if err != nil {
		return &settingError{name, value, err}
	}
	return nil
}
