package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/utils"
)

// Store is what host-local keeps of one network: the directory <Dir>/<Network>. A writer holds the plugin's
// own lock, so that the plugin and any number of processes of ours may use one store at once.
type Store struct{ Dir, Network string }

// ErrFull says that a subnet has no free address.
var ErrFull = errors.New("no free address is left")

// TakenError says that an address has another holder.
type TakenError struct {
	Address netip.Addr
	Holder  Holder
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("address %s belongs to %s", e.Address, e.Holder)
}

// lockName is the file that host-local locks, and newName what a reservation is called until it is whole.
const (
	lockName = "lock"
	newName  = ".weft-new"
	lastName = "last_reserved_ip."
)

// lockPause is how long a process waits before it tries the lock again. The plugin holds it for a few
// milliseconds.
const lockPause = 2 * time.Millisecond

// change calls do with the network's directory, which it makes if need be, while holding the lock. It gives
// up with ctx.
func (s Store) change(ctx context.Context, do func(dir string) error) error {
	if err := utils.ValidateNetworkName(s.Network); err != nil {
		return err
	}
	dir := filepath.Join(s.Dir, s.Network)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close() // which unlocks it
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return do(dir)
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s stays locked by another process (fuser %[1]s names it): %w", f.Name(),
				context.Cause(ctx))
		case <-time.After(lockPause):
		}
	}
}

// Release frees the addresses of h, or with only those of them alone, such as an allocation's new ones when it
// has to be undone. It returns what it freed: that h does not have one, or has none, is no error. A
// reservation of an old host-local, which names the container alone, is freed only if there is no other of h,
// as the plugin does it.
func (s Store) Release(ctx context.Context, h Holder, only ...netip.Addr) (freed []netip.Addr, err error) {
	if _, err := os.Lstat(filepath.Join(s.Dir, s.Network)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	err = s.change(ctx, func(dir string) (err error) {
		list, _ := s.Reservations() // somebody else's file is not this release's fault
		held := ofHolder(list, h)
		if len(held) == 0 && len(only) == 0 {
			held = ofHolder(list, Holder{Container: h.Container})
		}
		for _, r := range held {
			if len(only) > 0 && !slices.Contains(only, r.Address) {
				continue
			}
			if bad := os.Remove(filepath.Join(dir, r.file)); bad != nil && !errors.Is(bad, fs.ErrNotExist) {
				err = errors.Join(err, fmt.Errorf("%s stays reserved: %w", r.Address, bad))
				continue
			}
			freed = append(freed, r.Address)
		}
		return err
	})
	return freed, err
}

// Check returns an error if one of the addresses is not reserved for h. Nothing is wrong with a store that
// there is not, or whose files may not be read.
func (s Store) Check(h Holder, addrs ...netip.Addr) error {
	dir := filepath.Join(s.Dir, s.Network)
	if _, err := os.ReadDir(dir); err != nil {
		return nil
	}
	for _, a := range addrs {
		switch got, err := read(filepath.Join(dir, a.String())); {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s is nobody's in %s", a, dir)
		case err == nil && got != h:
			return &TakenError{a, got}
		}
	}
	return nil
}

// Lookup returns the addresses of h in ascending order, nil if it has none. A file that cannot be read is an
// error, beside which the addresses are returned.
func (s Store) Lookup(h Holder) (out []netip.Addr, err error) {
	list, err := s.Reservations()
	for _, r := range ofHolder(list, h) {
		out = append(out, r.Address)
	}
	return out, err
}

func ofHolder(list []Reservation, h Holder) (out []Reservation) {
	for _, r := range list {
		if r.Holder == h {
			out = append(out, r)
		}
	}
	return out
}

// reserve writes the file of an address, which appears whole or not at all. The caller holds the lock.
func reserve(dir string, a netip.Addr, h Holder) error {
	temp := filepath.Join(dir, newName)
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a process that died
		return err
	}
	if err := os.WriteFile(temp, []byte(h.Container+"\r\n"+h.Interface), 0o600); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	// Everybody who makes one has looked, under the lock, whether there is one.
	if err := os.Rename(temp, filepath.Join(dir, a.String())); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// last returns the address of range i that was given last, the zero Addr if that is not known.
func last(dir string, i int) netip.Addr {
	text, _ := os.ReadFile(lastFile(dir, i))
	a, _ := netip.ParseAddr(strings.TrimSpace(string(text)))
	return a.Unmap()
}

func lastFile(dir string, i int) string { return filepath.Join(dir, fmt.Sprint(lastName, i)) }

// leftovers removes the empty files of addresses: host-local makes the file before it writes the holder, so
// that under the lock an empty one is that of a plugin that died between the two.
func leftovers(dir string) error {
	entries, err := os.ReadDir(dir)
	faults := []error{err}
	for _, e := range entries {
		if _, err := netip.ParseAddr(e.Name()); err != nil || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil && info.Size() == 0 {
			faults = append(faults, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(faults...)
}
