package pods

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"weft/test/netns"
)

// What an ordinary user is told of a namespace that the kernel does not let be looked at.
func TestNamespacesOfOthers(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]foreign{
		"process 7 is bob's (user 2002)":    {pid: 7, owner: 2002, name: "bob", own: 2001},
		"process 7 is user 2002's":          {pid: 7, owner: 2002, own: 2001},
		"process 7 is root's":               {pid: 7, own: 2001},
		"set-user-ID program":               {pid: 7, owner: 2001, own: 2001},
		"process 7 may not be looked at":    {pid: 7, owner: -1, own: 2001},
		"/proc/7/fd/3 may not be looked at": {path: "/proc/7/fd/3", owner: -1, own: 2001},
	} {
		if err := f.err(); !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q in it", f, err, want)
		}
	}
}

// Whose a process is is read from /proc, where everybody may.
func TestWhoseProcessItIs(t *testing.T) {
	t.Parallel()
	netns.Root(t, "only root can start a process as another user")
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if f := readForeign(cmd.Process.Pid, ""); f.owner != 65534 || f.own != 0 {
		t.Errorf("%+v", f)
	}
	if f := readForeign(1<<22+1, ""); f.owner != -1 {
		t.Errorf("a process that cannot be: %+v", f)
	}
}
