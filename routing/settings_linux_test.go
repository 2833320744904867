package routing

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSettingNotes(t *testing.T) {
	lost := func(name string) error { return &settingError{name, "1", fs.ErrPermission} }
	for _, tt := range []struct {
		name string
		err  error
		want []string // one in each note
	}{
		{"none", nil, nil},
		{"another fault", errors.New("x"), nil},
		{"ICMP", lost(acceptLocal), []string{"net.ipv4.conf.flannel3.accept_local=1"}},
		{"both, joined", errors.Join(lost(acceptLocal), lost(ignoreLinkDown)), []string{"ICMPv4", "default route"}},
		{"one that costs nothing", errors.Join(lost(acceptRA)), nil},
	} {
		got := settingNotes("flannel3", tt.err)
		if !slices.EqualFunc(got, tt.want, strings.Contains) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

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
	etherLink(t, "eth0", 1500, "192.0.2.1/24")
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatalf("new mount namespace: %v", err)
	}
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, "")); err != nil {
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
