// Package subnetenv reads and writes subnet.env, the file in which a node tells
// container tools its subnet. CNI plugins, Docker's unit files and flannel itself
// read it, so its text is flannel's to the letter.
package subnetenv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"weft/lease/atomicfile"
)

// File is the content of subnet.env. A family that is off has no networks and a zero prefix.
type File struct {
	// Networks and IPv6Networks are the whole overlay. weftd writes one; other writers have several.
	Networks, IPv6Networks []netip.Prefix
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

// Equal reports whether f and g have the same content.
func (f File) Equal(g File) bool {
	return slices.Equal(f.Networks, g.Networks) && slices.Equal(f.IPv6Networks, g.IPv6Networks) &&
		f.Subnet == g.Subnet && f.IPv6Subnet == g.IPv6Subnet && f.MTU == g.MTU && f.IPMasq == g.IPMasq
}

// AppendText appends the file's text to b.
func (f File) AppendText(b []byte) ([]byte, error) {
	line := func(key, value string) { b = append(append(append(append(b, key...), '='), value...), '\n') }
	family := func(networksKey string, networks []netip.Prefix, subnetKey string, subnet netip.Prefix) {
		if !subnet.IsValid() {
			return
		}
		var list []string
		for _, n := range networks {
			list = append(list, n.String())
		}
		line(networksKey, strings.Join(list, ","))
		line(subnetKey, subnet.String())
	}
	family(keyNetwork, f.Networks, keySubnet, f.Subnet)
	family(keyIPv6Network, f.IPv6Networks, keyIPv6Subnet, f.IPv6Subnet)
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
	return atomicfile.WriteFunc(path, mode, 0o755, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// maxSize bounds what Read takes in, in bytes.
const maxSize = 64 << 10

// Read reads the file at path, as Parse does its text. The error wraps fs.ErrNotExist if there is none.
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

// Holds reports whether the file at path has the text of f, to the byte. An error says that it cannot be
// told, for want of descriptors or memory, which is no fault of the file.
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

// Parse reads the text of a subnet.env. Unknown keys are ignored, and of keys that occur twice the last
// one counts. The error joins every value that is wrong and names the keys that are missing.
func Parse(b []byte) (File, error) {
	if len(b) > maxSize {
		return File{}, fmt.Errorf("more than %d bytes", maxSize)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "export ")
		if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			values[strings.TrimSpace(key)] = unquote(strings.TrimSpace(value))
		}
	}
	var f File
	var faults []error
	for _, key := range []string{keyNetwork, keySubnet, keyIPv6Network, keyIPv6Subnet, keyMTU, keyIPMasq} {
		value, ok := values[key]
		if !ok {
			continue
		}
		if err := f.set(key, value); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", key, err))
		}
	}
	if err := errors.Join(append(faults, missing(values))...); err != nil {
		return File{}, err
	}
	return f, nil
}

// missing names the keys that are missing and without which no pod can be given an address.
func missing(values map[string]string) error {
	var keys []string
	for _, either := range [][]string{{keyNetwork, keyIPv6Network}, {keySubnet, keyIPv6Subnet}, {keyMTU},
		{keyIPMasq}} {
		if !slices.ContainsFunc(either, func(key string) bool { return values[key] != "" }) {
			keys = append(keys, either...)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return fmt.Errorf("missing %s", strings.Join(keys, ", "))
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
		f.Networks, err = prefixes(value, true)
	case keySubnet:
		f.Subnet, err = single(value, true)
	case keyIPv6Network:
		f.IPv6Networks, err = prefixes(value, false)
	case keyIPv6Subnet:
		f.IPv6Subnet, err = single(value, false)
	case keyMTU:
		f.MTU, err = strconv.Atoi(value)
		if err != nil || f.MTU < 0 || f.MTU > 65535 {
			err = fmt.Errorf("%q is not a number from 0 to 65535", value)
		}
	case keyIPMasq:
		f.IPMasq, err = strconv.ParseBool(value)
		if err != nil {
			err = fmt.Errorf("%q is neither true nor false", value)
		}
	}
	return err
}

// single reads a list of one prefix at most.
func single(list string, four bool) (netip.Prefix, error) {
	all, err := prefixes(list, four)
	switch {
	case err != nil || len(all) == 0:
		return netip.Prefix{}, err
	case len(all) > 1:
		return netip.Prefix{}, fmt.Errorf("%q is a list, and a node has one subnet", list)
	}
	return all[0], nil
}

// prefixes reads a comma list of one family, which may be empty.
func prefixes(list string, four bool) (out []netip.Prefix, err error) {
	if list == "" {
		return nil, nil
	}
	for s := range strings.SplitSeq(list, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil {
			return nil, err
		}
		if p.Addr().Is4() != four || p.Addr().Is4In6() {
			return nil, fmt.Errorf("%s is of the other address family", p)
		}
		out = append(out, p)
	}
	return out, nil
}
