package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Each node decides for itself whether it sends to a peer by a plain route or by the tunnel. If two nodes
// decide differently, packets come in by one link while those to their sender leave by another, and strict
// reverse path filtering (RFC 3704 section 2.2) takes them for forged. IPv6 has no such setting.

// ReversePath is the IPv4 setting, of which the kernel takes the larger of a link's own and that of
// all (IN_DEV_RPFILTER of inetdevice.h), and two of its values.
const (
	ReversePath       = "rp_filter"
	reversePathStrict = 1
	ReversePathLoose  = 2
)

const Conf4 = "/proc/sys/net/ipv4/conf"

// IsStrict reports whether a link refuses packets whose sender is reached by another link.
func (k *Kernel) IsStrict(link string) (strict bool, err error) {
	err = k.Do(func() error {
		most := 0
		for _, name := range []string{"all", link} {
			text, err := ReadSetting(filepath.Join(Conf4, name), ReversePath)
			if err != nil {
				return err
			}
			if n, err := strconv.Atoi(text); err == nil {
				most = max(most, n)
			}
		}
		strict = most == reversePathStrict
		return nil
	})
	return strict, err
}

// Loosen makes a strict link of ours accept packets from any sender to which there is a route. The peers'
// records decide who may send by it, and not the kernel's routes.
func (k *Kernel) Loosen(link string) error {
	strict, err := k.IsStrict(link)
	if err != nil || !strict {
		return err
	}
	return k.Do(func() error {
		return WriteSetting(filepath.Join(Conf4, link), ReversePath, strconv.Itoa(ReversePathLoose))
	})
}

// ReversePathDrops returns how many packets reverse path filtering has dropped in the namespace since it
// exists.
func (k *Kernel) ReversePathDrops() (n uint64, err error) {
	err = k.Do(func() error {
		b, err := os.ReadFile("/proc/thread-self/net/netstat")
		if err != nil {
			return err
		}
		n, err = NetstatCounter(string(b), "TcpExt", "IPReversePathFilter")
		return err
	})
	return n, err
}

// NetstatCounter finds a counter in the form of /proc/net/netstat: a line of names and one of numbers
// for each group.
func NetstatCounter(text, group, name string) (uint64, error) {
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != group+":" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i, n := range names {
			if n == name && i < len(f) {
				return strconv.ParseUint(f[i], 10, 64)
			}
		}
	}
	return 0, fmt.Errorf("no counter %s of %s", name, group)
}
