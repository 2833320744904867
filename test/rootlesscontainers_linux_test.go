package test

import (
	"sync"
	"testing"

	"weft/test/lab"
	"weft/test/lab/session"
	"weft/test/netns"
	"weft/test/talk"
)

// weftNetwork is a network of podman's with this host's subnets, as docs/rootless.md makes it.
const weftNetwork = `. "$XDG_RUNTIME_DIR"/weft/subnet.env
podman network create --disable-dns --subnet "$FLANNEL_SUBNET" --ipv6 --subnet "$FLANNEL_IPV6_SUBNET" --opt mtu="$FLANNEL_MTU" weft
sed -i 's/"ipMasq": true/"ipMasq": false/' ~/.config/cni/net.d/weft.conflist`

// Containers of podman's on one network of their host's subnets, and namespaces of RootlessKit's, of two users on two hosts: they talk by TCP and UDP, up to the full size, in both
// families.
func TestRootlessContainers(t *testing.T) {
	parallel(t)
	netns.Programs(t, "crun", "newuidmap:uidmap", "podman", "rootlesskit", "slirp4netns")
	h := userHosts(t, 2, lab.WireFull, busybox(t))
	u, bob := session.Ada(), session.Bob()
	rootFS := h.rootFS(u)
	podmans, kits := h.etcd(1, u, 2379, dualStackOn(8285)), h.etcd(2, bob, 2389, dualStackOn(8286))
	var containers, spaces []*talk.Talker
	for host := 1; host <= 2; host++ {
		m := h.joinBy(host, u, podmans, []string{"podman", "unshare", "--rootless-netns"}, "--ip-masq")
		h.serving(m)
		if _, err := h.run(host, u, session.Options{SetUID: true}, "sh", "-euc", weftNetwork); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"web", "shop"} {
			k, _ := h.container(host, u, rootFS, name, "--network=weft")
			containers = append(containers, k)
		}
		kit := h.joinBy(host, bob, kits, []string{"rootlesskit", "--net=slirp4netns", "--disable-host-loopback", "--copy-up=/etc", "--state-dir=" + bob.RuntimeDir() + "/rootlesskit"}, "--ip-masq")
		h.serving(kit)
		spaces = append(spaces, kit.Talker)
	}
	var wg sync.WaitGroup
	wg.Go(func() { allTalk(t, []int{4, 6}, containers) })
	allTalk(t, []int{4, 6}, spaces)
	wg.Wait()
	h.unprivileged()
}
