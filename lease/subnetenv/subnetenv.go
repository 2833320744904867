// Package subnetenv reads and writes subnet.env, the file in which a node tells
// container tools its subnet. CNI plugins, Docker's unit files and flannel itself
// read it, so its text is flannel's to the letter.
package subnetenv

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"

	"weft/lease/internal/replace"
)

// File is the content of subnet.env. A family that is off has zero prefixes.
type File struct {
	// Network and IPv6Network are the whole overlay.
	Network, IPv6Network netip.Prefix
	// Subnet and IPv6Subnet are the node's, written as the first address in it with
	// the subnet's length: 10.5.72.1/24.
	Subnet, IPv6Subnet netip.Prefix
	// MTU is the largest inner packet, in bytes.
	MTU int
	// IPMasq says that the node masquerades what leaves the overlay.
	IPMasq bool
}

// The keys, in the order of the file.
const (
	keyNetwork     = "FLANNEL_NETWORK"
	keySubnet      = "FLANNEL_SUBNET"
	keyIPv6Network = "FLANNEL_IPV6_NETWORK"
	keyIPv6Subnet  = "FLANNEL_IPV6_SUBNET"
	keyMTU         = "FLANNEL_MTU"
	keyIPMasq      = "FLANNEL_IPMASQ"
)

// AppendText appends the file's text to b.
func (f File) AppendText(b []byte) ([]byte, error) {
	line := func(key, value string) { b = append(append(append(append(b, key...), '='), value...), '\n') }
	if f.Subnet.IsValid() {
		line(keyNetwork, f.Network.String())
		line(keySubnet, f.Subnet.String())
	}
	if f.IPv6Subnet.IsValid() {
		line(keyIPv6Network, f.IPv6Network.String())
		line(keyIPv6Subnet, f.IPv6Subnet.String())
	}
	line(keyMTU, strconv.Itoa(f.MTU))
	line(keyIPMasq, strconv.FormatBool(f.IPMasq))
	return b, nil
}

// Write replaces the file at path in one step, so that a reader sees the old text
// or the new. A directory is made with mode 0755; a new file has mode 0644
// whatever the umask, and an existing one keeps its mode.
func Write(path string, f File) error {
	mode := os.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	text, err := f.AppendText(nil)
	if err != nil {
		return err
	}
	return replace.File(path, mode, 0o755, func(w io.Writer) error { _, err := w.Write(text); return err })
}

// maxSize bounds what Read takes in, in bytes.
const maxSize = 64 << 10

// Read reads the file back. A missing file gives an error that wraps
// fs.ErrNotExist; otherwise the error joins every line that is wrong. Unknown keys
// are ignored; a list of several prefixes is refused.
func Read(path string) (File, error) {
	b, err := readText(path)
	if err != nil {
		return File{}, fmt.Errorf("read subnet file: %w", err)
	}
	f, err := Parse(b)
	if err != nil {
		return File{}, fmt.Errorf("read subnet file %s: %w", path, err)
	}
	return f, nil
}

// Holds reports whether the file at path has the text of f, to the byte. An error says that it cannot be told, for want of descriptors or
// memory, which is no fault of the file.
func Holds(path string, f File) (bool, error) {
	want, err := f.AppendText(nil)
	if err != nil {
		return false, nil // it can have no such text
	}
	b, err := readText(path)
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) {
		return false, fmt.Errorf("compare subnet file %s: %w", path, err)
	}
	return err == nil && bytes.Equal(b, want), nil
}

// readText reads at most a byte more than Parse takes, and nothing but a file: a device has no end,
// and a pipe perhaps no writer.
func readText(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	return io.ReadAll(io.LimitReader(f, maxSize+1))
}

// Parse reads the text of a subnet.env.
func Parse(b []byte) (File, error) {
	if len(b) > maxSize {
		return File{}, fmt.Errorf("more than %d bytes", maxSize)
	}
	var f File
	var faults []error
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		text := strings.TrimPrefix(strings.TrimSpace(lines.Text()), "export ")
		key, value, ok := strings.Cut(text, "=")
		if text == "" || strings.HasPrefix(text, "#") || !ok {
			continue
		}
		if err := f.set(strings.TrimSpace(key), unquote(strings.TrimSpace(value))); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", key, err))
		}
	}
	if len(faults) > 0 {
		return File{}, errors.Join(faults...)
	}
	return f, nil
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

func (f *File) set(key, value string) (err error) {
	switch key {
	case keyNetwork:
		f.Network, err = prefix(value, true)
	case keySubnet:
		f.Subnet, err = prefix(value, true)
	case keyIPv6Network:
		f.IPv6Network, err = prefix(value, false)
	case keyIPv6Subnet:
		f.IPv6Subnet, err = prefix(value, false)
	case keyMTU:
		f.MTU, err = strconv.Atoi(value)
		if err == nil && (f.MTU < 0 || f.MTU > 65535) {
			err = fmt.Errorf("%d is not from 0 to 65535", f.MTU)
		}
	case keyIPMasq:
		f.IPMasq, err = strconv.ParseBool(value)
	}
	return err
}

func prefix(s string, four bool) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err == nil && (p.Addr().Is4() != four || p.Addr().Is4In6()) {
		err = fmt.Errorf("%s is of the other address family", p)
	}
	return p, err
}
