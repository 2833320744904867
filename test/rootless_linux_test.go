package test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/session"
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
