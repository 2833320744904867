package errno

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

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
