package test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"weft/test/await"
	"weft/test/lab"
)

// A systemd runs the shipped unit, of a node that encrypts in user space. The process that encrypts goes on over restarts, crashes and hand-overs of
// weftd, and no packet is lost by them; after a stop it is not there any more.
func TestWireGuardUnderSystemd(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{NetworkConfig: networkOf(`{"Type":"wireguard","Userspace":"always"}`, false)})
	n, far := l.Node(2), l.Node(1).Pods[0]
	reach(t, await.Patience, n.Pods[0], far, 4)
	u := underSystemd(t, n)
	pid, _ := u.runs(t, 0, 0)
	reach(t, await.Patience, n.Pods[0], far, 4)
	const stored = 4 // the line to the process, the process, what both are called, and when weftd was last alive
	u.runs(t, 0, stored)
	cipher := func() string { return u.do(t, "pgrep", "-f", "wireguard flannel-wg$") }
	process := cipher()
	for _, c := range []struct {
		name string
		do   []string
	}{
		{"restart", []string{"systemctl", "restart", unitName}},
		{"kill", []string{"systemctl", "kill", "--signal=KILL", "--kill-whom=main", unitName}},
		{"upgrade", []string{"weft", "upgrade"}},
		{"kill of the one that took its place", []string{"systemctl", "kill", "--signal=KILL", "--kill-whom=main", unitName}},
		{"upgrade", []string{"weft", "upgrade"}},
		{"restart of the one that took its place", []string{"systemctl", "restart", unitName}},
	} {
		u.replaced(t, c.name, 0, n.Pods[0], far, func() {
			u.do(t, c.do[0], c.do[1:]...)
			pid, _ = u.runs(t, pid, stored)
		})
		if now := cipher(); now != process {
			t.Errorf("%s: process %q encrypts, and before %q", c.name, now, process)
		}
	}
	u.isConfined(t, pid)

	u.do(t, "systemctl", "stop", unitName)
	log, err := u.Log()
	if err != nil || strings.Contains(log, "Killing process") { // that is more than what was asked for
		t.Errorf("%v, %s", err, log)
	}
	await.OK(t, "nothing is left", func() error {
		if left := u.do(t, "sh", "-c", "cat /sys/fs/cgroup/system.slice/"+unitName+"/cgroup.procs 2>/dev/null; pgrep -a weft || :"); left != "" {
			return fmt.Errorf("%s", strconv.Quote(left))
		}
		return nil
	})
}
