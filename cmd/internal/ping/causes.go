package ping

import (
	"fmt"
	"strings"
)

// where a command is to be run.
const here = "here"

// list collects causes, the likeliest first.
type list struct {
	peer string
	all  []Cause
}

func (l *list) here(cause, tells, command string, a ...any) {
	l.all = append(l.all, Cause{cause, fmt.Sprintf(command, a...), here, tells})
}

func (l *list) there(cause, tells, command string, a ...any) {
	l.all = append(l.all, Cause{cause, fmt.Sprintf(command, a...), l.peer, tells})
}

// causes are those of the first broken layer.
func (s *seen) causes(f *layerResult) []Cause {
	l := &list{peer: "on " + s.w.Peer}
	switch {
	case f.State == Lossy:
		s.lossy(f, l)
	case f.State == Narrow:
		s.narrow(f, l)
	case f.Layer == Underlay:
		s.underlay(f, l)
	case f.Layer == Port:
		s.port(f, l)
	case f.Layer == DataPlane:
		s.dataPlane(f, l)
	case f.Layer == Daemon:
		s.daemon(f, l)
	case f.Layer == Bridge:
		s.bridge(l)
	case f.Layer == Pod:
		s.pod(f, l)
	}
	return l.all
}

func (s *seen) lossy(f *layerResult, l *list) {
	w := s.w
	dev := orAny(w.Link)
	switch f.Layer {
	case Underlay:
		l.here("a link or a queue of this host drops", "errors or drops that grow", "ip -s link show %s; ethtool -S %s | grep -iE 'err|drop'", orAll(w.Link), dev)
		l.there("a link or a queue of that host drops", "errors or drops that grow", "ip -s link; ethtool -S LINK | grep -iE 'err|drop'")
		l.here("a switch or router between drops", "the first hop from which on a part is lost", "mtr -n -c 50 %v", f.To)
	case Port, DataPlane, Daemon:
		l.there("its receive queue overflows, or its data plane has no processor to run on", "drops by reason that grow, or lost in the kernel", "weft status")
		l.here("a rule drops a part of the overlay's datagrams, as a limit does", "a rule with limit or numgen", "nft list ruleset; iptables-save | grep -iE 'limit|statistic'")
		l.there("the same on that host", "a rule with limit or numgen", "nft list ruleset; iptables-save | grep -iE 'limit|statistic'")
		l.here("a device between drops UDP when there is much of it", "what leaves here and does not arrive there", "tcpdump -ni %s %s and host %v", dev, w.dump(), w.Under)
	default:
		l.there("the bridge's or the pod's link drops", "drops that grow", "ip -s link")
		l.there("the pod has no processor to run on, or its queue overflows", "a load near or above its limit", "top; ip -s link")
	}
}

func (s *seen) narrow(f *layerResult, l *list) {
	w := s.w
	base := 20 + 8 // of an ICMP echo request, which ping -s does not count
	if f.To.Is6() {
		base += 20
	}
	under := f.Layer == Underlay || f.Layer == Port
	if under || s.w.Under.IsValid() && !s.answers(Underlay) {
		l.here("a device on the way carries less than this host's link, and drops without an ICMP message", "this size passes and one more does not; tracepath names the hop",
			"ping -c1 -M do -s %d %v; ping -c1 -M do -s %d %v; tracepath -n %v", f.MTU-base, f.To, f.MTU-base+1, f.To, f.To)
		l.here("a firewall drops the ICMP messages that say so", "a rule that drops icmp, or icmpv6 packet-too-big", "nft list ruleset; iptables-save | grep -i icmp")
		l.there("the link of that host has a smaller MTU than this one's", "an MTU below that of this host's link", "ip link show")
		l.here(fmt.Sprintf("until it is mended: an MTU of the overlay that passes, \"Backend\": {\"MTU\": %d}", f.MTU), "the network config in use", "weft status")
		return
	}
	l.here("a device on the way drops large datagrams of the overlay only, as some firewalls do with UDP", "large datagrams leave here and do not arrive there",
		"tcpdump -ni %s %s and host %v and greater %d", orAny(w.Link), w.dump(), w.Under, f.MTU)
	l.there("the overlay's device, or the bridge, there has a smaller MTU", "an MTU below this node's overlay", "ip link show; weft status")
}

func (s *seen) underlay(f *layerResult, l *list) {
	w, said := s.w, f.out.Said
	switch {
	case f.State == Unsent && said.Kind == KindHost:
		l.here("the host is off, or its link is down: nobody on this link has the address", "FAILED or INCOMPLETE", "ip neigh show %v", f.To)
		l.there("the host has another address now", "another address than "+f.To.String(), "ip -br addr; weft status (at its console)")
		l.here("the link is the wrong one for that network, or in another VLAN", "another link than the peers'", "ip route get %v; ip -br link; weft doctor", f.To)
	case f.State == Unsent && said.Kind == KindNet:
		l.here("this host has no route there", "unreachable, or a link that does not lead there", "ip route get %v", f.To)
		l.here("this host's link is down, or its address is gone", "DOWN or no address", "ip -br addr; weft status")
	case f.State == Unsent:
		l.here("a rule of this host for OUTPUT refuses it", "a rule that drops or rejects", "nft list ruleset; iptables -S OUTPUT")
		l.here("this host has no usable route or address", "an error, or a source that is not this host's", "ip route get %v", f.To)
	case f.State == Refused && said.Kind == KindProhibited:
		l.here(fmt.Sprintf("a firewall at %v forbids it", said.By), "the last hop that answers", "tracepath -n %v", f.To)
	case f.State == Refused:
		l.here(fmt.Sprintf("the host is off, or its link is down: %v, the router before it, does not reach it", said.By), "the router answers and the host does not", "ping -c3 %v", said.By)
		l.here("the router has no route to that network", "the last hop that answers", "tracepath -n %v", f.To)
		l.there("the host has another address now", "another address than "+f.To.String(), "ip -br addr; weft status (at its console)")
	default:
		l.here("the host is off, or its link is down", "FAILED or INCOMPLETE (REACHABLE: it lives, and a firewall drops)", "ip neigh show %v; ip route get %v", f.To, f.To)
		l.here("the network between is broken, or a router's route", "the hop after which nothing answers", "tracepath -n %v", f.To)
		l.there("a firewall drops both ICMP and the overlay's port", "packets arrive: then it is its own rules", "tcpdump -ni any host %s; nft list ruleset", orThis(w))
		l.here("the record's address is not that of the host any more", "another address than the host's", "weft lease list %s", w.Peer)
	}
}

func (s *seen) port(f *layerResult, l *list) {
	w, said := s.w, f.out.Said
	stopped := func() {
		switch {
		case w.Protocol != 0 && w.Weft && w.carried():
			l.there("its weftd is not running", "inactive, or no raw socket of the protocol", "systemctl status weftd; ss -wlnp")
		case w.Protocol != 0:
			l.there("the overlay's device is gone there, so that nobody takes the protocol", "no such device, or DOWN", "ip -d link show type ipip")
		case w.Weft && w.carried():
			l.there("its weftd is not running", "inactive, or nothing at the port", "systemctl status weftd; ss -lunp sport = :%d", w.UDPPort)
		default:
			l.there("the overlay's device is gone there, so that nobody has the port", "no such device, or another port", "ip -d link show type vxlan; ss -lun sport = :%d", w.UDPPort)
		}
	}
	switch {
	case f.State == Unsent:
		l.here("a rule of this host for OUTPUT refuses it", "a rule that drops or rejects it", "nft list ruleset; iptables -S OUTPUT | grep -e %d -e REJECT -e DROP", max(w.UDPPort, uint16(w.Protocol)))
		l.here("this host has no usable route or address for it", "an error", "ip route get %v", f.To)
	case f.State == Refused && said.By == f.To && (said.Kind == KindPort || said.Kind == KindProtocol):
		stopped()
		l.there("a rule there rejects the "+w.what()+", which looks the same from here", "a rule that rejects it", "nft list ruleset | grep -n reject; iptables-save | grep REJECT")
	case f.State == Refused:
		where := l.here
		text := fmt.Sprintf("a firewall on the way, at %v, rejects %s", said.By, w.outer())
		if said.By == f.To {
			where, text = l.there, "its firewall rejects "+w.outer()
		}
		where(text, "a rule that rejects it; on a router, its own configuration", "nft list ruleset | grep -n reject; iptables-save | grep REJECT")
	case s.heard:
		l.there(w.outer()+" is dropped on the way to it, or by its firewall: what it sends does arrive here", "no packets of this node: on the way; packets: its own rules for INPUT",
			"tcpdump -ni any %s and src host %s; nft list ruleset", strings.Replace(w.dump(), "udp port", "udp dst port", 1), orThis(w))
	default:
		l.there(w.outer()+" is dropped on the way, or by a firewall of either host", "no packets of this node arrive: on the way; they do: its own rules, or the next cause",
			"tcpdump -ni any %s and host %s", w.dump(), orThis(w))
		l.there("its weftd is stopped or frozen, so that it reads nothing", "not running, or no answer within seconds", "systemctl status weftd; weft status")
		l.here("a rule of this host drops it", "a rule that names it, or a policy of drop", "weft doctor; nft list ruleset; iptables -S")
	}
}

func (s *seen) dataPlane(f *layerResult, l *list) {
	w, said := s.w, f.out.Said
	switch {
	case f.State == Unsent:
		l.here("this host has no route into the overlay, or another one in its place", "another device than the overlay's", "ip route get %v from %v; weft doctor", f.To, w.From)
		l.here("a rule of this host for OUTPUT refuses it", "a rule that drops or rejects", "nft list ruleset; iptables -S OUTPUT")
	case f.State == Refused && said.By == w.From:
		l.here("this node's own data plane does not know the peer, or does not reach it", "the reason beside the peer", "weft peers %s; weft status", w.Peer)
	case f.State == Refused:
		l.here(fmt.Sprintf("the packet left the overlay, and %v rejects it", said.By), "another device than the overlay's", "ip route get %v from %v; weft doctor", f.To, w.From)
	case s.answers(Port):
		l.here("a route of this host, or of that one, leads the packets elsewhere", "another device than the overlay's", "ip route get %v from %v; weft doctor", f.To, w.From)
		l.there("its firewall drops what comes in by the overlay's device, or all ICMP", "a rule for INPUT that drops icmp, or a policy of drop", "nft list ruleset; iptables -S INPUT; sysctl net.ipv4.icmp_echo_ignore_all")
		l.there("the data plane there drops the packets", "drops by reason that grow", "weft status; weft capture --dropped")
		l.there("answers are dropped by rp_filter, there or here", "1 on the overlay's device", "sysctl -a 2>/dev/null | grep '\\.rp_filter'")
	default:
		l.there(w.outer()+" is dropped on the way, or by a firewall of either host", "no packets of this node arrive: on the way; they do: its own rules, or the next cause",
			"tcpdump -ni any %s and host %s", w.dump(), orThis(w))
		switch {
		case w.Weft && w.carried():
			l.there("its weftd is stopped or frozen", "not running, or no answer within seconds", "systemctl status weftd; weft status")
		case w.Weft:
			l.there("the overlay's device is down or gone there, or has another VNI", "no such device, DOWN, or another id", "ip -d link show type vxlan; weft status")
		default:
			l.there("flanneld is stopped, or its device is gone", "inactive, or no such device", "systemctl status flanneld; ip -br link")
		}
		l.here("this host's forwarding entries, or its route, for the peer are not as weft wants them", "a fault", "weft doctor; ip route get %v from %v", f.To, w.From)
		l.there("its firewall drops what comes in by the overlay's device, or all ICMP", "a rule for INPUT that drops icmp, or a policy of drop", "nft list ruleset; iptables -S INPUT")
	}
}

func (s *seen) daemon(f *layerResult, l *list) {
	switch f.State {
	case Refused:
		l.there("its weftd is not running", "inactive or failed", "systemctl status weftd; journalctl -u weftd -n 50")
		l.there("it runs without probes", "--probe=false, or WEFTD_PROBE", "systemctl cat weftd; weft status")
	case Unsent:
		l.here("this host cannot send there", "another device than the overlay's", "ip route get %v from %v; weft doctor", f.To, s.w.From)
	default:
		l.there("its weftd is stopped or frozen: the kernel carries packets on, and it learns of no change", "no answer within seconds; state T or D", "weft status; ps -o pid,stat,wchan:20,cmd -C weftd")
		l.there("its firewall drops what comes in by the overlay: UDP port 8286", "a rule for INPUT that drops it, or a policy of drop", "nft list ruleset; iptables -S INPUT")
		l.there("this node's record is not known there, or another", "this node is missing, or has another address", "weft peers")
	}
}

func (s *seen) bridge(l *list) {
	w := s.w
	where := l.there
	if w.Local {
		where = l.here
	}
	where("the bridge is gone, or has another address: that of a former subnet", "no device with "+w.Gateway.String(), "ip -br addr | grep -F %v/", w.Gateway)
	where("no pod runs there: the bridge comes with the first", "no pod on that node", "kubectl get pods -A -o wide --field-selector spec.nodeName=%s", w.Peer)
	where("pods there have no bridge, and the pod itself is broken", "a route to the pod by a device of its own", "ip route get %v", orGateway(w))
	where("its firewall drops what comes in by the overlay", "a rule for INPUT or FORWARD that drops, or a policy of drop", "nft list ruleset; iptables -S")
}

func (s *seen) pod(f *layerResult, l *list) {
	where := l.there
	if s.w.Local {
		where = l.here
	}
	gone := func() {
		where("there is no pod with the address (any more)", "FAILED or INCOMPLETE", "ip neigh show %v; kubectl get pods -A -o wide | grep -wF %v", f.To, f.To)
	}
	drops := func() {
		where("a NetworkPolicy, or a rule of that host for FORWARD, drops it", "a rule or chain that drops", "kubectl get networkpolicy -A; iptables -S FORWARD; nft list ruleset")
	}
	if f.State == Refused && f.out.Said.Kind == KindProhibited {
		drops()
		gone()
	} else {
		gone()
		drops()
	}
	where("its link to the bridge, or the bridge, is down", "DOWN", "ip -br link")
	where("forwarding is off there", "0", "sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding")
	where("the pod drops ICMP, or its route back is missing", "no answer from inside either, or no default route", "nsenter -t PID -n ip route (PID of the pod's process)")
}

func orAny(link string) string {
	if link == "" {
		return "any"
	}
	return link
}

func orAll(link string) string {
	if link == "" {
		return "dev LINK"
	}
	return link
}

// orThis is this node's address on the underlay.
func orThis(w Route) string {
	if w.UnderFrom.IsValid() {
		return w.UnderFrom.String()
	}
	return "THIS-NODE"
}

func orGateway(w Route) any {
	if w.Pod.IsValid() {
		return w.Pod
	}
	return w.Gateway
}

// outer is what the overlay's packets are on the wire, and dump the same in tcpdump's words.
func (w Route) outer() string {
	switch {
	case w.UDPPort != 0:
		return fmt.Sprintf("UDP port %d", w.UDPPort)
	case w.Protocol != 0:
		return fmt.Sprintf("IP protocol %d", w.Protocol)
	}
	return "what goes to it"
}

// what is the short word for it.
func (w Route) what() string {
	if w.Protocol != 0 {
		return "protocol"
	}
	return "port"
}

func (w Route) dump() string {
	switch {
	case w.UDPPort != 0:
		return fmt.Sprintf("udp port %d", w.UDPPort)
	case w.Protocol != 0:
		return fmt.Sprintf("ip proto %d", w.Protocol)
	}
	return "ip"
}
