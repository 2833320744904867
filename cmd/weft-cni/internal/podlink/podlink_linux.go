// Package podlink reads the pod's own interface, and sets its GSO limit, which the delegate cannot.
package podlink

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// LimitGSO sets the largest size, in bytes, of the superpackets of both families that leave
// through link in the network namespace at path.
//
// The limit is set on the pod's end alone, where TCP reads it when it builds a superpacket. On
// the host's end it would make the kernel cut up packets for the pod, and a bridge adopts the
// smallest limit of its ports.
func LimitGSO(path, link string, bytes int) error {
	h, err := open(path)
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := h.LinkByName(link)
	if err != nil {
		return fmt.Errorf("%s in %s: %w", link, path, err)
	}
	if err := h.LinkSetGSOMaxSize(l, bytes); err != nil { // the kernel sets that of IPv4 with it
		return fmt.Errorf("limit the superpackets of %s in %s to %d bytes: %w", link, path, bytes, err)
	}
	return nil
}

// Exists reports whether there is a link of that name in the network namespace at path.
func Exists(path, link string) (bool, error) {
	h, err := open(path)
	if err != nil {
		return false, err
	}
	defer h.Close()
	_, err = h.LinkByName(link)
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s in %s: %w", link, path, err)
	}
	return true, nil
}

// open returns a handle that the caller closes.
func open(path string) (*netlink.Handle, error) {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink in %s: %w", path, err)
	}
	return h, nil
}
