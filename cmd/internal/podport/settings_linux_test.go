package podport

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What is not the file of that interface's MTU, or cannot be written, is refused. TestPodsAreAttachedDirectly
// has some that are taken.
func TestInspectSettingRefuses(t *testing.T) {
	for _, c := range []struct{ path, name, want string }{
		{"/dev/null", "lo", "file"},
		{"/sys/class/net/lo/mtu", "eth0", "file"},
		{"/sys/class/net/lo/flags", "lo", "file"},
		{"/sys/class/net/lo/mtu", "lo", "reading"},
	} {
		fd, err := unix.Open(c.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := InspectSetting(fd, c.name, "mtu"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s as that of %s: %v, want %q", c.path, c.name, err, c.want)
		}
		_ = unix.Close(fd)
	}
}
