package routing

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/netns"
)

// readOnlySysctl makes /proc/sys of the calling thread what it is in most containers.
func readOnlySysctl(t *testing.T, on bool) {
	t.Helper()
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND)
	if on {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount("", "/proc/sys", "", flags, ""); err != nil {
		t.Fatalf("remount /proc/sys: %v", err)
	}
}

func TestUDPNotesAReadOnlySysctl(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatalf("new mount namespace: %v", err)
	}
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	u := newTestUDP(t, k, false)
	defer u.Close()
	noted := func() bool {
		t.Helper()
		apply(t, u, testSet("10.5.1.0/24", false))
		return strings.Contains(strings.Join(u.Status().Notes, "\n"), "ICMPv4 errors")
	}
	readOnlySysctl(t, true)
	if !noted() {
		t.Errorf("no word of what is lost: %q", u.Status().Notes)
	}
	readOnlySysctl(t, false)
	if noted() {
		t.Errorf("still, though it is mended: %q", u.Status().Notes)
	}
}
