package test

import (
	"fmt"
	"strings"
	"testing"

	"weft/test/await"
	"weft/test/lab"
)

const userIPIP = `{"Type":"ipip","Userspace":"always"}`

// TestIPIP: with type ipip in user space, a firewall that drops the protocol is named, and so is a peer whose
// host does not take it, by weft peers and weft ping, as it is with a UDP port. TestMatrix has it carry
// packets.
func TestIPIP(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{Nodes: 2, NetworkConfig: networkOf(userIPIP, false)})
	me, peer := l.Node(1), l.Node(2)
	a, b := me.Pods[0], peer.Pods[0]
	answering(t, l, []int{4}, 1480)

	sh(t, peer.Host, "iptables -P INPUT DROP")
	named(t, peer, "a firewall may drop the protocol", "firewall-input", "iptables -I INPUT -p 4 -j ACCEPT")
	sh(t, peer.Host, "iptables -P INPUT ACCEPT")
	reach(t, await.Patience, a, b, 4)

	if err := peer.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.OK(t, "weft peers says that the peer takes no ipip", func() error {
		answer, err := weftTells[struct {
			Peers []struct {
				Probes      []probeSeen
				Unreachable struct{ Says, By string }
			}
		}](t, me, "peers")
		if err != nil {
			return err
		}
		p := answer.Peers[0]
		if p.Unreachable.Says != "protocol unreachable" || p.Unreachable.By != peer.Underlay4.String() {
			return fmt.Errorf("%+v", p)
		}
		if x := p.Probes[0]; !strings.Contains(x.Likely, "unreachable") || !strings.Contains(x.Look, "ss -wlnp") {
			return fmt.Errorf("%+v", x)
		}
		return nil
	})
	await.OK(t, "weft ping", func() error { // the kernel says so a few times a second at the most
		// its status says that something is broken
		out, _, _ := weft(t, me, "ping", peer.Name, "-c", "2", "--timeout", "1s")
		if !containsAll(out, []string{"ICMP protocol unreachable", "ss -wlnp"}) {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}
