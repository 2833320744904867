package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/podport"
	"weft/cmd/internal/rights"
)

func (n *node) MayAttach(podport.Request) error { return n.err }

func (n *node) Attach(r podport.Request, fds []int) (podport.Pod, error) {
	rights.Close(fds)
	return podport.Pod{Request: r, State: podport.Attached}, n.err
}

func (n *node) Detach(k podport.Key) (podport.Pod, error) {
	return podport.Pod{Request: podport.Request{Key: k}}, n.err
}

func (n *node) Pods() podport.Pods {
	if n.empty {
		return podport.Pods{Pods: []podport.Pod{}, Node: podport.Node{Why: "the kernel moves the packets"}}
	}
	at := func(id, name, address string) podport.Pod {
		return podport.Pod{
			Request: podport.Request{Key: podport.Key{ID: id, Interface: "eth0"}, Name: name, Netns: "/run/netns/" +
				name, By: podport.ByWeft, Addresses: []netip.Addr{addr(address)}, MTU: 1472},
			State: podport.Attached, Since: at(-time.Hour),
		}
	}
	web, db, old := at("netns-7", "web", "10.42.1.20"), at("4f1c", "evil\x1b[2J", "10.42.1.21"),
		at("netns-9", "", "10.42.9.3")
	web.SentPackets, web.SentBytes, web.ReceivedPackets, web.ReceivedBytes, web.LastSeen = 1000, 1<<20, 7,
		999, at1h()
	web.Drops = []podport.Drop{{Reason: "foreign_source", Packets: 3, Admit: "the pod's own address"}}
	db.By, db.State, db.Problem = "weft-cni", podport.Missing, "it has to be attached again: delete the pod"
	old.Problem = "10.42.9.3 is not of this node's subnets 10.42.1.0/24 any more"
	return podport.Pods{Pods: []podport.Pod{web, db, old},
		Node: podport.Node{Attaches: true, Subnets: []netip.Prefix{prefix("10.42.1.0/24")},
			Networks: []netip.Prefix{prefix("10.42.0.0/16")}, MTU: 1472}}
}

func at1h() time.Time { return at(-time.Hour - half) }

// What is wrong with the flags is said before anything is asked or made.
func TestAttachChecksItsFlags(t *testing.T) {
	none := t.TempDir() + "/none"
	for args, want := range map[string]string{
		"attach":                                  "least",
		"attach --pid 1 --netns /x":               "others",
		"attach --pid -3":                         "process",
		"attach --pid 2147483646":                 "process",
		"attach --netns " + none:                  "ip netns list",
		"attach --netns /etc/passwd":              "namespace",
		"attach --netns /proc/self/ns/net":        "itself",
		"attach --netns /x --name a/b":            "interface",
		"attach --netns /x --address 10.1.1.1/24": "length",
		"attach --netns /x --routes some":         "--routes some",
		"attach --netns /x --mtu 12":              "--mtu 12",
		"detach":                                  "name",
		"detach --pid 3 web":                      "name",
		"detach web --control-socket " + none:     "running",
		"pods --control-socket " + none:           "running",
		"pods --interval 1s":                      "--watch",
	} {
		if _, _, err := weft(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
	socket := start(t, &node{})
	for args, want := range map[string]string{"detach nobody": "no pod", "detach 10.42.1.21": "weft-cni"} {
		if _, _, err := weft(t, append(strings.Fields(args), "--control-socket", socket)...); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
}
