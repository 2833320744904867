package rootless

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/options"
)

// TestEnvironmentHasOneWord: a variable that was set before, even to nothing, does not hide what the next
// weftd is told.
func TestEnvironmentHasOneWord(t *testing.T) {
	t.Setenv(options.Inside, "")
	t.Setenv(options.UserID, "7")
	var found []string
	for _, v := range environment("join:3:4") {
		if strings.HasPrefix(v, options.Inside) || strings.HasPrefix(v, options.UserID) {
			found = append(found, v)
		}
	}
	if want := []string{options.Inside + "=join:3:4", fmt.Sprint(options.UserID, "=", os.Getuid())}; !slices.Equal(found, want) {
		t.Errorf("%q, want %q", found, want)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", "^TestWhatTheNextOneReads$", "-test.v")
	cmd.Env = environment("join:3:4")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "reads join:3:4\n") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestWhatTheNextOneReads is what TestEnvironmentHasOneWord executes.
func TestWhatTheNextOneReads(t *testing.T) { t.Log("reads", os.Getenv(options.Inside)) }

// TestDescriptorsThatAreHandedOn: after arrival the network namespace's is closed on exec, and the user
// namespace's is closed.
func TestDescriptorsThatAreHandedOn(t *testing.T) {
	open := func(file string) int {
		fd, err := unix.Open(file, unix.O_RDONLY, 0) // as nsenter leaves it: without close-on-exec
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	net, user := open("/proc/self/ns/net"), open("/proc/self/ns/user")
	defer unix.Close(net)
	_, word := way{tool: "nsenter", word: wordJoin, user: user, net: net}.command("nsenter", "weftd",
		nil, user, net)
	got, err := joined(word)
	if err != nil || got != net {
		t.Fatalf("%s: %d, %v, want %d", word, got, err, net)
	}
	if flags, err := unix.FcntlInt(uintptr(net), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the network namespace's descriptor would be handed on: %#x, %v", flags, err)
	}
	if kind, err := unix.IoctlRetInt(user, unix.NS_GET_NSTYPE); err == nil && kind == unix.CLONE_NEWUSER {
		t.Error("the user namespace's descriptor is open still")
	}
	// Somebody's own descriptors stay.
	other := open("/dev/null")
	defer unix.Close(other)
	if _, err := joined(fmt.Sprint(wordJoin, ":", net, ":", other)); err != nil {
		t.Error(err)
	}
	if _, err := unix.FcntlInt(uintptr(other), unix.F_GETFD, 0); err != nil {
		t.Errorf("another descriptor was closed: %v", err)
	}
	for _, word := range []string{"join:", "join:x", "join:-1", "join:3:", "join:3:x", "join", "joined:3", ""} {
		if fd, err := joined(word); err == nil {
			t.Errorf("%q: %d", word, fd)
		}
	}
}
