package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

var (
	pfx, addr = netip.MustParsePrefix, netip.MustParseAddr

	compareState = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

	// net4 and net6 are the overlay's networks in tests.
	net4, net6 = pfx("10.5.0.0/16"), pfx("fd00:5::/48")
)

func mac(s string) MAC {
	m, err := ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return m
}

func TestExhausted(t *testing.T) {
	short := fmt.Errorf("list links: %w", os.NewSyscallError("socket", unix.EMFILE))
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{short, true},
		{errors.Join(short, unix.ENOMEM), true},
		{fmt.Errorf("rules: %w", errors.Join(short, fmt.Errorf("routes: %w", unix.ENFILE))), true},
		{errors.Join(short, unix.EPERM), false},
		{unix.EPERM, false},
		{errors.New("no errno"), false},
	} {
		if got := Exhausted(tt.err); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
	}
}
