// Package hostlocal shares the addresses of a node's subnets with the host-local plugin, which keeps a file
// for each: <directory>/<network>/<address>, with the container's id and, since its version 0.8, the
// interface in a second line. Beside them are the file that it locks, and one for each range with the address
// that was given last. The plugin respects these reservations, and this package the plugin's, so all pods of
// a node share one allocation, however they are attached.
//
// host-local has no GC of its own. A reservation whose container is gone would be held
// for ever, until the node's subnet has no address left.
package hostlocal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/containernetworking/cni/pkg/utils"
)

// Plugin is the name of the plugin.
const Plugin = "host-local"

// DefaultDir is where host-local keeps its files unless its configuration has dataDir.
const DefaultDir = "/var/lib/cni/networks"

// maxText bounds a file, in bytes.
const maxText = 4096

// Holder is an attachment that has addresses. Interface is "" in a reservation of an old host-local.
type Holder struct{ Container, Interface string }

func (h Holder) String() string {
	switch {
	case h == Holder{}:
		return "a holder whose file cannot be read"
	case h.Interface == "":
		return "container " + h.Container
	}
	return "interface " + h.Interface + " of container " + h.Container
}

// Reservation is an address that somebody has.
type Reservation struct {
	Address netip.Addr
	// Holder is zero if the file cannot be read: then nobody knows whose the address is.
	Holder Holder

	file string // its name, which is the address as whoever made it writes it
}

// Reservations returns the network's, in ascending order of address. Files that are no reservations are
// ignored. A directory that does not exist has none. The error is about files that cannot be read.
func (s Store) Reservations() ([]Reservation, error) {
	if err := utils.ValidateNetworkName(s.Network); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.Dir, s.Network)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	faults := []error{err}
	var out []Reservation
	for _, e := range entries {
		a, err := netip.ParseAddr(e.Name())
		if err != nil || !e.Type().IsRegular() {
			continue
		}
		h, err := read(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) { // released meanwhile
			continue
		}
		faults = append(faults, err)
		out = append(out, Reservation{a.Unmap(), h, e.Name()})
	}
	slices.SortFunc(out, func(a, b Reservation) int { return a.Address.Compare(b.Address) })
	return out, errors.Join(faults...)
}

// Holders returns the attachments that have an address in network, each once and sorted. The error is as that
// of Reservations.
func Holders(dir, network string) ([]Holder, error) {
	list, err := Store{dir, network}.Reservations()
	var out []Holder
	for _, r := range list {
		if r.Holder != (Holder{}) {
			out = append(out, r.Holder)
		}
	}
	slices.SortFunc(out, func(a, b Holder) int {
		return strings.Compare(a.Container+":"+a.Interface, b.Container+":"+b.Interface)
	})
	return slices.Compact(out), err
}

// InUse reports whether anybody has an address of network in subnet, as far as that can be read.
func InUse(dir, network string, subnet netip.Prefix) bool {
	list, err := Store{dir, network}.Reservations()
	return list == nil && err != nil || slices.ContainsFunc(list, func(r Reservation) bool {
		return subnet.Contains(r.Address)
	})
}

func read(path string) (Holder, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Holder{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxText))
	if err != nil {
		return Holder{}, err
	}
	container, iface, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	h := Holder{strings.TrimSpace(container), strings.TrimSpace(iface)}
	if err := utils.ValidateContainerID(h.Container); err != nil {
		return Holder{}, fmt.Errorf("%s: %w", path, err)
	}
	if h.Interface != "" {
		if err := utils.ValidateInterfaceName(h.Interface); err != nil {
			return Holder{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	return h, nil
}
