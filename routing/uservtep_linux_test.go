package routing

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/test/await"
	"weft/test/netns"
)

// hosts makes hosts on one Ethernet, whose bridge is in a namespace of its own.
func hosts(t *testing.T, count int) (nodes []*node) {
	t.Helper()
	bridge := aloneInNamespace(t)
	sh := func(k *kernel.Kernel, args string) {
		t.Helper()
		if err := k.Do(func() error { _, err := netns.TryIP(args); return err }); err != nil {
			t.Fatal(err)
		}
	}
	sh(bridge, "link add br0 type bridge")
	sh(bridge, "link set br0 up")
	for i := range count {
		n := &node{k: newNamespace(t), own: vxlanPeer(i + 1)}
		sh(n.k, "link set lo up")
		sh(bridge, fmt.Sprintf("link add port%d type veth peer name far", i))
		sh(bridge, fmt.Sprintf("link set far netns /proc/%d/fd/%d", os.Getpid(), n.k.NS))
		sh(bridge, fmt.Sprintf("link set port%d master br0 up", i))
		for _, args := range []string{"link set far name eth0", "link set eth0 up",
			fmt.Sprintf("addr add 192.0.2.%d/24 dev eth0", i+1),
			fmt.Sprintf("addr add 2001:db8::%d/64 dev eth0 nodad", i+1)} {
			sh(n.k, args)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// joinVTEPs tells every node of every other.
func joinVTEPs(t *testing.T, nodes []*node) {
	t.Helper()
	for _, n := range nodes {
		s := lease.Set{Config: lease.NetworkConfig{EnableIPv4: true, EnableIPv6: true, Network: net4,
			IPv6Network: net6}, Own: n.own}
		for _, o := range nodes {
			if o != n {
				s.Peers = append(s.Peers, o.own)
			}
		}
		if err := n.u.Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// addr is the node's own address in the overlay.
func (n *node) addr(six bool) netip.Addr {
	if six {
		return n.own.V6.Addr()
	}
	return n.own.V4.Addr()
}

// TestUserVTEPTakesThePort lets the data plane take over where the kernel's device was, and back.
func TestUserVTEPTakesThePort(t *testing.T) {
	k := aloneInNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	config := func(how string) string {
		return `{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan","Userspace":"` + how + `"}}`
	}
	b := openKernelBackend(t, k, config("never"), nil)
	b.start()
	b.apply(kernelSet(b, vxlanPeer(2)))
	b.stop()
	ip(t, "link show flannel.1")

	open := func() *Node { return openKernelBackend(t, k, config("always"), nil).Node }
	u := open()
	data, _ := u.Publish()
	if was, _ := b.Publish(); string(data) != string(was) {
		t.Errorf("publishes %s, the kernel's was %s", data, was)
	}
	set := kernelSet(b, vxlanPeer(2))
	apply(t, u, set)
	stop := start(t, u)
	if out, err := netns.TryIP("link show flannel.1"); err == nil {
		t.Errorf("the kernel's device is left:\n%s", out)
	}
	if out := ip(t, "route show proto 119"); strings.TrimSpace(out) != "10.5.0.0/16 dev flannel0 scope link" {
		t.Errorf("routes %q", out)
	}
	stop()

	// One that is another program's stays, and is named.
	ip(t, "link add vx9 type vxlan id 9 dstport 8472 dev eth0")
	ip(t, "link set vx9 up")
	u = open()
	if err := u.Apply(t.Context(), set); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("with another program's device: %v", err)
	}
	start(t, u)
	ip(t, "link del vx9")
	await.OK(t, "the port is free", func() error {
		if st := u.Status(); !st.InPlace {
			return errors.New(st.LastError)
		}
		return nil
	})
}
