package probe

import (
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A remedy is only given for the fault that it mends.
func TestRemedies(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{{unix.EPERM, "CAP_NET_RAW"}, {unix.EMFILE, "LimitNOFILE"}, {unix.ENOBUFS, ""}} {
		err := &net.OpError{Op: "listen", Err: os.NewSyscallError("socket", c.err)}
		if got := remedy(err, unix.EPERM, "give weftd CAP_NET_RAW"); !strings.Contains(got, c.want) ||
			(got == "") != (c.want == "") {
			t.Errorf("%v: %q", c.err, got)
		}
	}
}
