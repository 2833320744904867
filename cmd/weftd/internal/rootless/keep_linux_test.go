package rootless

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAloneInANamespace: this process does not count as another one in the network namespace, or a weftd of
// whose threads one is there would wait for itself.
func TestAloneInANamespace(t *testing.T) {
	const inside = "WEFT_TEST_ALONE"
	if os.Getenv(inside) != "" {
		if others, keepers, err := whoIsIn("/proc/self/ns/net"); others || len(keepers) > 0 || err != nil {
			t.Errorf("%v %v %v", others, keepers, err)
		}
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inside+"=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v: %s", err, out)
	}
}
