package test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/session"
	"weft/test/netns"
	"weft/test/talk"
)

// attached joins the namespace of a process to its user's weftd, as its user does.
func (h tenants) attached(host int, u session.User, pid string, name string) {
	h.t.Helper()
	if out, err := h.run(host, u, session.Options{}, "weft", "attach", "--pid", pid, "--pod", name); err !=
		nil || !strings.Contains(out, name+" is attached: 10.42.") {
		h.t.Fatal(out, err)
	}
}

// container runs a talker in a container of podman's, and returns its process too.
func (h tenants) container(host int, u session.User, rootFS, name string, o ...string) (k *talk.Talker,
	pid string) {
	h.t.Helper()
	args := append([]string{"podman", "run", "--interactive", "--name", name}, o...)
	k = h.talkerOf(host, u, session.Options{SetUID: true}, append(args, "--rootfs", rootFS, "/bin/talker")...)
	pid, err := h.run(host, u, session.Options{SetUID: true}, "podman", "inspect", "--format",
		"{{.State.Pid}}", name)
	if err != nil {
		h.t.Fatal(err)
	}
	return k, strings.TrimSpace(pid)
}

// An ordinary user attaches namespaces directly: beside that of weftd's TUN, below it, and containers of
// podman's, also one in which root is another user. weftd is killed meanwhile, and its pods keep what they
// have.
func TestRootlessDirect(t *testing.T) {
	parallel(t)
	netns.Programs(t, "podman")
	h := userHosts(t, 2, lab.WireFull, busybox(t))
	u := session.Ada()
	store := h.etcd(1, u, 2379, dualStackOn(8285))
	rootFS := h.rootFS(u)
	var all []*talk.Talker
	var members []*member
	for i := range 2 {
		m := h.join(1+i, u, store)
		members = append(members, m)
		h.serving(m)
		for name, by := range map[string][]string{
			"beside": {"unshare", "-Urn"},
			"below": {"nsenter", "--user", "--net", "--preserve-credentials", "--target=" + strconv.Itoa(m.PID),
				"unshare", "-Urn"},
		} {
			k := h.talker(m.host, u, session.Options{}, by...)
			h.attached(m.host, u, strconv.Itoa(k.PID), name)
			all = append(all, k)
		}
		for name, o := range map[string][]string{"container": {"--network=none"},
			"keeping": {"--network=none", "--userns=keep-id"}} {
			k, pid := h.container(m.host, u, rootFS, name, o...)
			h.attached(m.host, u, pid, name)
			all = append(all, k)
		}
	}
	allTalk(t, []int{4, 6}, all)

	// Its descriptors are kept by a process of the user's.
	m := members[0]
	if err := m.daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := m.daemon.Start(); err != nil {
		t.Fatal(err)
	}
	h.serving(m)
	allTalk(t, []int{4, 6}, all)

	// One is detached, and one ends: their addresses are free.
	if _, err := h.run(1, u, session.Options{}, "weft", "detach", "beside"); err != nil {
		t.Error(err)
	}
	if _, err := h.run(1, u, session.Options{SetUID: true}, "podman", "kill", "container"); err != nil {
		t.Error(err)
	}
	await.OK(t, "two pods are left", func() error {
		out, err := h.run(1, u, session.Options{}, "weft", "pods")
		if err == nil && (strings.Contains(out, "beside") || strings.Contains(out, "container")) {
			return errors.New(out)
		}
		return err
	})
	h.unprivileged()
}
