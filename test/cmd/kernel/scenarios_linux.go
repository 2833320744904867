package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"weft/test/lab"
)

// scenario is a way to carry packets.
type scenario struct {
	name, keys string // of Backend in the network configuration
	path       string // what weftd on both nodes says that moves the packets; "" for any
	// on and off are what a node, or the wire, has otherwise: commands before weftd starts, and after it has
	// ended.
	on, off func(*lab.Node) string
	wire    [2]string
	// quiet is what is looked at before a packet flows.
	quiet func(context.Context) error
	// refused says that weftd does not start with it, and names a word of the reason.
	refused string
}

const udp = `"Type":"udp"`

// scenarios are all.
func (b *bench) scenarios() []scenario {
	best, raw := "socket", scenario{name: "path raw", keys: udp + `,"Path":"raw"`, path: "raw"}
	if b.runs {
		best = "raw"
	} else {
		raw.refused = "VIRTIO_NET_HDR_GSO_UDP_L4"
	}
	return []scenario{
		{name: "wireguard by the kernel", keys: `"Type":"wireguard","Userspace":"never","Probe":false`,
			path: "kernel", quiet: b.handshakes},
		{name: "vxlan by the kernel", keys: `"Type":"vxlan","Userspace":"never"`, path: "kernel"},
		{name: "ipip by the kernel", keys: `"Type":"ipip","Userspace":"never"`, path: "kernel"},
		{name: "host-gw", keys: `"Type":"host-gw"`, path: "kernel"},
		{name: "auto", keys: `"Type":"auto"`, path: "kernel"},
		{name: "path auto", keys: udp, path: best},
		raw,
		{name: "path socket", keys: udp + `,"Path":"socket"`, path: "socket"},
		{name: "path portable", keys: udp + `,"Path":"portable"`, path: "portable"},
		{name: "vxlan in user space", keys: `"Type":"vxlan","Userspace":"always"`, path: best},
		{name: "ipip in user space", keys: `"Type":"ipip","Userspace":"always"`, path: "socket"},
		{name: "wireguard in user space", keys: `"Type":"wireguard","Userspace":"always"`, path: "userspace"},
		// Frames would pass by IPsec, so that auto chooses path socket on one node.
		{name: "path socket beside path auto", keys: udp, off: func(*lab.Node) string {
			return "ip xfrm policy flush"
		}, on: func(n *lab.Node) string {
			return fmt.Sprintf("[ %d != 1 ] || ip xfrm policy add src 203.0.113.1 dst 203.0.113.2 dir out tmpl "+
				"proto esp mode transport", n.Index)
		}},
		{name: "bond", keys: udp, path: best, on: above("ip link add eth0 type bond mode active-backup miimon " +
			"100; ip link set card master eth0"), off: below},
		{name: "vlan", keys: udp, path: best, on: above("ip link add link card name eth0 type vlan id 7"),
			off: below, wire: [2]string{
				"ip link set wire0 type bridge vlan_filtering 1; bridge vlan add dev node1 vid 7; bridge vlan add dev " +
					"node2 vid 7; bridge vlan add dev store vid 7 pvid untagged",
				"bridge vlan del dev store vid 7; bridge vlan add dev store vid 1 pvid untagged; ip link set wire0 type " +
					"bridge vlan_filtering 0"}},
		{name: "ipvlan", keys: udp, path: best, off: below, on: func(n *lab.Node) string {
			const add = "ip link add link wire0 name slave type ipvlan mode l2 && ip link set slave netns "
			wire, node := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), b.lab.Wire.NS.FD()),
				fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.NS.FD())
			return above("nsenter --net=" + wire + " sh -c '" + add + node + "'; ip link set slave name eth0")(n)
		}},
		{name: "netem", keys: udp, path: best, wire: [2]string{
			"for d in node1 node2; do tc qdisc add dev $d root netem delay 2ms 1ms loss 1% reorder 1%; done",
			"for d in node1 node2; do tc qdisc del dev $d root; done"}},
	}
}

// above makes eth0 of a node a device above its card, which is called card then. script makes eth0.
func above(script string) func(*lab.Node) string {
	return func(n *lab.Node) string {
		return "ip link set eth0 down; ip addr flush dev eth0; ip link set eth0 name card; " + script +
			"; ip link set card up; " + addressed(n)
	}
}

// below makes the card eth0 again.
func below(n *lab.Node) string {
	return "ip link del eth0; ip link set card down; ip link set card name eth0; " + addressed(n)
}

// addressed gives eth0 the node's addresses.
func addressed(n *lab.Node) string {
	return fmt.Sprintf("ip link set eth0 up; ip addr add %s/16 brd + dev eth0; ip -6 addr replace %s/64 dev "+
		"eth0 nodad; ip route add default via 198.18.255.254; "+
		"ip -6 route add default via fd18::fffe dev eth0", n.Underlay4, n.Underlay6)
}

// handshakes waits until a device of type wireguard that is new has a session, and deletes it, so that it is
// made anew and has one again. Nobody sends a packet, which would begin one.
func (b *bench) handshakes(ctx context.Context) error {
	n, since := b.lab.Node(1), time.Time{}
	for range 2 {
		err := until(func() error {
			var peers struct {
				Peers []struct {
					Encryption []struct{ LatestHandshake time.Time }
				}
			}
			err := b.ask(ctx, n, &peers, "peers")
			if err == nil && (len(peers.Peers) != 1 || len(peers.Peers[0].Encryption) != 1 ||
				!peers.Peers[0].Encryption[0].LatestHandshake.After(since)) {
				err = fmt.Errorf("no handshake since %v: %+v", since, peers)
			}
			return err
		})
		since = time.Now()
		if err = errors.Join(err, sh(ctx, n.Host, "ip link del flannel-wg")); err != nil {
			return err
		}
	}
	return nil
}

// until tries for a minute at most.
func until(try func() error) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		if err := try(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// run has the lab carry packets as s says, and weft cleanup take all of it away.
func (b *bench) run(s scenario) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 4*time.Minute,
		errors.New("the scenario's time is over"))
	defer cancel()
	if err := b.each(ctx, s.on); err != nil {
		return err
	}
	err := errors.Join(sh(ctx, b.lab.Wire, s.wire[0]), b.configure(ctx, s.keys))
	switch {
	case err != nil:
	case s.refused != "":
		err = b.refuses(ctx, s.refused)
	default:
		err = b.carries(ctx, s)
	}
	ctx = context.WithoutCancel(ctx) // the next scenario shall not suffer
	return errors.Join(err, b.stop(ctx), b.each(ctx, s.off), sh(ctx, b.lab.Wire, s.wire[1]), b.isClean(ctx))
}

func (b *bench) carries(ctx context.Context, s scenario) error {
	for _, n := range b.lab.Nodes() {
		if err := n.Start(ctx); err != nil {
			return err
		}
	}
	if s.quiet != nil {
		if err := s.quiet(ctx); err != nil {
			return err
		}
	}
	if err := b.flows(ctx); err != nil {
		return err
	}
	return b.well(ctx, s.path)
}

// refuses waits until the first node's weftd says that it is not ready, for a reason with that word.
func (b *bench) refuses(ctx context.Context, word string) error {
	n := b.lab.Node(1)
	if err := n.Daemon.Start(); err != nil {
		return err
	}
	return until(func() error {
		if err := n.Ready(ctx); err == nil || !strings.Contains(err.Error(), word) {
			return n.Fault(fmt.Errorf("it does not say that it lacks %s, but %q", word, fmt.Sprint(err)))
		}
		return nil
	})
}

func (b *bench) each(ctx context.Context, script func(*lab.Node) string) error {
	var faults []error
	for _, n := range b.lab.Nodes() {
		if script != nil {
			faults = append(faults, sh(ctx, n.Host, script(n)))
		}
	}
	return errors.Join(faults...)
}
