package test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/session"
	"weft/test/netns"
	"weft/test/talk"
)

// dualStackOn is a network of both families whose tunnel has a port of its own, as each of several users on a
// host needs one.
func dualStackOn(port int) string {
	return fmt.Sprintf(
		`{"Network":"10.42.0.0/16","SubnetLen":24,"EnableIPv6":true,"IPv6Network":"fd42::/48","Backend":{"Type":"udp","Port":%d}}`, port)
}

// member is a host of a user's network: a namespace for the TUN, and weftd.
type member struct {
	*talk.Talker
	daemon *lab.Daemon
	host   int
	user   session.User
	pods   []*talk.Talker
}

// join makes a namespace of a user's on a host, and a weftd that joins it to a network.
func (h tenants) join(host int, u session.User, of network) *member {
	h.t.Helper()
	return h.joinBy(host, u, of, []string{"unshare", "-Urn"})
}

// joinBy makes the namespace by a program of the user's, which may be set-user-ID's.
func (h tenants) joinBy(host int, u session.User, of network, by []string, args ...string) *member {
	h.t.Helper()
	file := u.Home() + "/net-conf.json"
	if _, err := h.run(host, u, session.Options{}, "sh", "-c", `printf %s "$2" >"$1"`, "write", file, of.config); err != nil {
		h.t.Fatal(err)
	}
	m := &member{Talker: h.talker(host, u, session.Options{SetUID: by[0] != "unshare"}, by...),
		host: host, user: u}
	args = append([]string{"--rootless", "--tun-netns=" + strconv.Itoa(m.PID), "--etcd-endpoints=" + of.url,
		"--net-config-path=" + file}, args...)
	m.daemon = h.daemon(host, u, session.Options{}, "weftd", "weftd", args...)
	if err := m.daemon.Start(); err != nil {
		h.t.Fatal(err)
	}
	return m
}

// serving waits until weftd says that it is ready.
func (h tenants) serving(m *member) {
	h.t.Helper()
	await.OK(h.t, m.Name+" is ready", func() error {
		_, err := h.run(m.host, m.user, session.Options{}, "weft", "status")
		return err
	})
}

// upgraded has a weftd execute its program again, which finds itself in the namespaces that weftd went into.
func (h tenants) upgraded(m *member) {
	h.t.Helper()
	if out, err := h.run(m.host, m.user, session.Options{}, "weft", "upgrade"); err != nil {
		h.t.Fatalf("%v\n%s", err, out)
	}
	h.serving(m)
}

// bridged makes a bridge in the namespace of the TUN, by which the namespaces that addPod makes are joined to
// it.
const bridged = `. "$XDG_RUNTIME_DIR"/weft/subnet.env
ip link add br0 mtu "$FLANNEL_MTU" type bridge
ip address add "$FLANNEL_SUBNET" dev br0
ip address add "$FLANNEL_IPV6_SUBNET" dev br0 nodad
ip link set br0 up
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1`

// addPod joins the namespace of process $1 to the bridge, with number $2 in the node's subnet.
const addPod = `. "$XDG_RUNTIME_DIR"/weft/subnet.env
ip link add pod"$2" mtu "$FLANNEL_MTU" type veth peer name eth0 mtu "$FLANNEL_MTU" netns "$1"
ip link set pod"$2" master br0 up
exec nsenter --user --net --preserve-credentials --target "$1" sh -eu -c '
	ip link set lo up
	ip link set eth0 up
	ip address add "${1%.*}.$3/24" dev eth0
	ip address add "${2%::*}::$3/64" dev eth0 nodad
	ip route add default via "${1%/*}"
	ip route add default via "${2%/*}"' pod "$FLANNEL_SUBNET" "$FLANNEL_IPV6_SUBNET" "$2"`

// inside runs a script in the namespace of the TUN.
func (h tenants) inside(m *member, script string, args ...string) {
	h.t.Helper()
	argv := append([]string{"--user", "--net", "--preserve-credentials", "--target=" + strconv.Itoa(m.PID), "sh",
		"-eu", "-c", script, "inside"}, args...)
	if out, err := h.run(m.host, m.user, session.Options{}, "nsenter", argv...); err != nil {
		h.t.Fatalf("%v%s", err, out)
	}
}

// addPods makes namespaces with unshare -Urn behind that of the TUN, and joins them to it.
func (h tenants) addPods(m *member, count int) {
	h.t.Helper()
	h.inside(m, bridged)
	for i := range count {
		k := h.talker(m.host, m.user, session.Options{}, "nsenter", "--user", "--net", "--preserve-credentials",
			"--target="+strconv.Itoa(m.PID), "unshare", "-Urn")
		k.Name = fmt.Sprintf("pod %d on host %d", i+1, m.host)
		m.pods = append(m.pods, k)
		h.inside(m, addPod, strconv.Itoa(k.PID), strconv.Itoa(10+i))
	}
}

func talkers(members []*member) (all []*talk.Talker) {
	for _, m := range members {
		all = append(all, m.Talker)
	}
	return all
}

// Network namespaces that ordinary users made with unshare -Urn on several hosts, and a store that each user
// runs: two users have a network of their own, with the same addresses, and neither hears the other's. All
// pairs of a network talk, in both families, also after an upgrade and a restart of weftd. Root has no process
// on the hosts, and nobody has a capability outside of the user's namespaces.
func TestRootless(t *testing.T) {
	parallel(t)
	h := userHosts(t, 2, lab.WireFull)
	var networks [][]*member
	for i, u := range []session.User{session.Ada(), session.Bob()} {
		store := h.etcd(1, u, 2379+10*i, dualStackOn(8285+i))
		networks = append(networks, []*member{h.join(1, u, store), h.join(2, u, store)})
	}
	for _, members := range networks {
		for _, m := range members {
			h.serving(m)
		}
		allTalk(t, []int{4, 6}, talkers(members))
	}
	h.unprivileged()
	members := networks[0]
	h.upgraded(members[0])
	allTalk(t, []int{4, 6}, talkers(members))
	h.returning(members)
	h.ended(members[1])
	allTalk(t, []int{4, 6}, talkers(networks[1]))
}

// returning kills a weftd and starts it again, and the connections of its namespace are there again, with the
// addresses that it had.
func (h tenants) returning(members []*member) {
	h.t.Helper()
	before := address(h.t, members[0].Talker, 4)
	if err := members[0].daemon.Kill(); err != nil {
		h.t.Fatal(err)
	}
	if err := members[0].daemon.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.serving(members[0])
	if after := address(h.t, members[0].Talker, 4); after.Prefix != before.Prefix {
		h.t.Errorf("weftd had %s, and after its death and a new start it has %s", before.Prefix, after.Prefix)
	}
	allTalk(h.t, []int{4, 6}, talkers(members))
}

// ended ends the namespace of a weftd, which then says so and ends too.
func (h tenants) ended(m *member) {
	h.t.Helper()
	m.Close()
	select {
	case <-m.daemon.Exited():
		if err := m.daemon.ExitError(); err == nil {
			h.t.Error("weftd ended with status 0 when its namespace did")
		}
	case <-time.After(await.Patience):
		h.t.Errorf("weftd, pid %d, runs %v after its network namespace ended", m.daemon.PID(), await.Patience)
	}
}

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

// Pods that are attached directly, and those on a bridge, reach what is outside by slirp4netns where it is in
// the namespace of the TUN. weft says where its way out is, by pasta as well, and where there is none; that a
// pod hears at once.
func TestRootlessOutside(t *testing.T) {
	parallel(t)
	netns.Programs(t, "newuidmap:uidmap", "pasta:passt", "rootlesskit", "slirp4netns")
	h := userHosts(t, 3, lab.WireFull)
	addr := h.Node(3).Underlay4 // no overlay has it
	u, bob := session.Ada(), session.Bob()
	h.talker(3, u, session.Options{}, "env")
	store := h.etcd(1, u, 2379, dualStackOn(8285))
	members := []*member{
		h.joinBy(1, u, store, []string{"rootlesskit", "--net=slirp4netns", "--disable-host-loopback",
			"--copy-up=/etc", "--state-dir=" + u.RuntimeDir() + "/rootlesskit"}, "--ip-masq"),
		h.joinBy(2, u, store, []string{"unshare", "-Urn"}, "--ip-masq"),
	}
	pasta := h.daemon(2, u, session.Options{}, "pasta", "pasta", "--foreground", "--config-net", "--no-map-gw",
		"--tcp-ports", "none", "--udp-ports", "none", "--tcp-ns", "none",
		"--udp-ns", "none", strconv.Itoa(members[1].PID))
	if err := pasta.Start(); err != nil {
		t.Fatal(err)
	}
	alone := h.join(1, bob, h.etcd(1, bob, 2389, dualStackOn(8286)))
	var all []*talk.Talker
	for _, m := range append(members, alone) {
		h.serving(m)
		k := h.talker(m.host, m.user, session.Options{}, "unshare", "-Urn")
		k.Name = "direct pod of " + m.Name
		h.attached(m.host, m.user, strconv.Itoa(k.PID), "direct")
		m.pods = append(m.pods, k)
	}
	h.addPods(members[0], 1)
	for _, m := range members {
		all = append(all, m.pods...)
	}
	allTalk(t, []int{4, 6}, all)
	for _, k := range members[0].pods {
		// pasta of Debian 12 sends what was said again where a direction is closed early, as a conversation does
		// (docs/rootless.md)
		to := talk.Target{Addr: addr, MTU: address(t, k, 4).MTU}
		if r, err := k.Ask(talk.Request{Talk: []talk.Target{to}}); err != nil || r.Talked != 3 {
			t.Errorf("%s to the outside: %+v, %v", k.Name, r, err)
		}
	}
	for i, want := range []string{"tap0", " by eth0"} {
		await.OK(t, "weft status says where that is", func() error {
			out, err := h.run(1+i, u, session.Options{}, "weft", "status")
			if err == nil && !strings.Contains(out, want) {
				err = fmt.Errorf("want %q in %s", want, out)
			}
			return err
		})
	}

	// Bob's lead nowhere, which is an answer, and not silence.
	nsenter := []string{"--user", "--net", "--preserve-credentials", "--target=" +
		strconv.Itoa(alone.pods[0].PID), "ping", "-n", "-c", "1", "-W", strconv.Itoa(int(await.Patience.Seconds())),
		addr.String()}
	if out, err := h.run(1, bob, session.Options{}, "nsenter", nsenter...); err == nil ||
		!strings.Contains(out, "Unreachable") {
		t.Errorf("without a way out: %v: %s", err, out)
	}
	if out, err := h.run(1, bob, session.Options{}, "weft", "status"); err != nil ||
		!strings.Contains(out, "elsewhere") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := h.run(1, bob, session.Options{}, "weft", "doctor"); !strings.Contains(out, "nothing else") {
		t.Errorf("%v: %s", err, out)
	}
	h.unprivileged()
}
