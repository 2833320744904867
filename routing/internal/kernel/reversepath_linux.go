package kernel

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
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
		threads, err := procfs.NewFS("/proc/self/task")
		if err != nil {
			return err
		}
		thread, err := threads.Proc(unix.Gettid())
		if err != nil {
			return err
		}
		s, err := thread.Netstat()
		if c := s.IPReversePathFilter; c != nil {
			n = uint64(*c)
		}
		return err
	})
	return n, err
}

// StrictDrops tells when the underlay's link, which is not ours to change, loses peers' packets. The
// zero value counts from its first use.
type StrictDrops struct {
	began bool
	first uint64
}

// Note is for the operator, about a peer that is reached by the tunnel although a plain route was looked for,
// "" for none; "" if nothing is lost, or it cannot be known. It blames a peer only once packets were dropped:
// where both sides use the tunnel a strict link does no harm.
func (s *StrictDrops) Note(k *Kernel, link, peer string) string {
	n, err := k.ReversePathDrops()
	if err != nil {
		return ""
	}
	if !s.began {
		s.began, s.first = true, n
	}
	if n == s.first || peer == "" {
		return ""
	}
	if strict, err := k.IsStrict(link); err != nil || !strict {
		return ""
	}
	return fmt.Sprintf("%d packets were dropped by rp_filter since weftd started, which is strict on %s: this "+
		"node reaches %s by the tunnel, and what it sends plainly is taken for forged; sysctl -w "+
		"net.ipv4.conf.%s.rp_filter=%d",
		n-s.first, link, peer, strings.ReplaceAll(link, ".", "/"), ReversePathLoose)
}
