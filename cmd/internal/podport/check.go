package podport

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"unicode"
)

// maxID and maxText bound what names a pod, in bytes. A file has the name of a key.
const maxID, maxText = 200, 512

// Check refuses what is no key. Both of its parts are used in file names and in metrics.
func (k Key) Check() error {
	if !isName(k.ID, maxID) {
		return fmt.Errorf("%q is no id of a pod: want up to %d of a-z, A-Z, 0-9, _, . and -, the first of them a "+
			"letter or a digit", clip(k.ID), maxID)
	}
	return CheckInterface(k.Interface)
}

func (k Key) String() string { return k.Interface + " of " + k.ID }

// Compare orders keys.
func (k Key) Compare(l Key) int {
	if c := strings.Compare(k.ID, l.ID); c != 0 {
		return c
	}
	return strings.Compare(k.Interface, l.Interface)
}

// CheckInterface refuses what the kernel takes for no name of an interface.
func CheckInterface(name string) error {
	bad := func(r rune) bool { return r <= ' ' || r >= unicode.MaxASCII || r == '/' || r == ':' || r == '%' }
	if name == "" || len(name) > 15 || name == "." || name == ".." || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("%q is no name of an interface: want 1 to 15 characters without blanks, /, : and %%",
			clip(name))
	}
	return nil
}

// Check refuses what no honest client sends.
func (r Request) Check() error {
	if err := r.Key.Check(); err != nil {
		return err
	}
	for what, text := range map[string]string{"name": r.Name, "netns": r.Netns, "by": r.By} {
		if len(text) > maxText || strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
			return fmt.Errorf("%s %q: want at most %d bytes of text", what, clip(text), maxText)
		}
	}
	if n := len(r.Addresses); n == 0 || n > MaxAddresses {
		return fmt.Errorf("%d addresses: want 1 to %d", n, MaxAddresses)
	}
	for i, a := range r.Addresses {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" || !a.IsGlobalUnicast() {
			return fmt.Errorf("%s is no address for a pod", a)
		}
		if slices.Contains(r.Addresses[:i], a) {
			return fmt.Errorf("%s is there twice", a)
		}
	}
	if r.MTU < LeastMTU || r.MTU > MostMTU {
		return fmt.Errorf("MTU %d: want %d to %d", r.MTU, LeastMTU, MostMTU)
	}
	if slices.ContainsFunc(r.Addresses, netip.Addr.Is6) && r.MTU < 1280 {
		return fmt.Errorf("MTU %d: IPv6 needs 1280", r.MTU)
	}
	return r.Reservation.Check()
}

// Check refuses what is outside of a directory of host-local. A nil Reservation is sound.
func (r *Reservation) Check() error {
	switch {
	case r == nil:
		return nil
	case !path.IsAbs(r.Dir) || path.Clean(r.Dir) != r.Dir || len(r.Dir) > 4096 || strings.ContainsRune(r.Dir, 0):
		return fmt.Errorf("directory of the reservations %q: want an absolute path", clip(r.Dir))
	case !isName(r.Network, maxID):
		return fmt.Errorf("%q is no name of a network", clip(r.Network))
	}
	return nil
}

// isName reports whether s is what CNI takes for the id of a container and for the name of a network.
func isName(s string, most int) bool {
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '_' && c != '.' && c != '-') {
			return false
		}
	}
	return s != "" && len(s) <= most
}

// clip shortens what may be of any length.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
