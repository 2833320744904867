package diagnose

import "net/netip"

func (l *list) bridge() {
	w, where := l.p, l.host()
	l.routed(w.Gateway)
	where("bridge-gone", "the bridge is gone, or has another address: that of a former subnet",
		"no device with "+w.Gateway.String(), "ip -br addr | grep -F %v/", w.Gateway)
	where("no-pods", "no pod runs there: the bridge comes with the first", "no pod on that node",
		"kubectl get pods -A -o wide --field-selector spec.nodeName=%s", w.Peer)
	pod := w.Pod
	if !pod.IsValid() {
		pod = w.Gateway
	}
	where("no-bridge", "pods there have no bridge, and the pod itself is broken",
		"a route to the pod by a device of its own",
		"ip route get %v", pod)
	where("peer-forward", "its firewall drops what comes in by the overlay",
		"a rule for INPUT or FORWARD that drops, or a policy of drop", rules+"; iptables -S")
}

func (l *list) pod(f Fact) {
	where := l.host()
	l.routed(f.To)
	gone := func() {
		where("no-such-pod", "there is no pod with the address (any more)", "FAILED or INCOMPLETE",
			"ip neigh show %v; kubectl get pods -A -o wide | grep -wF %v", f.To, f.To)
	}
	drops := func() {
		where("policy", "a NetworkPolicy, or a rule of that host for FORWARD, drops it",
			"a rule or chain that drops",
			"kubectl get networkpolicy -A; iptables -S FORWARD; "+rules)
	}
	if f.State == Refused && f.Said.Kind == KindProhibited {
		drops()
		gone()
	} else {
		gone()
		drops()
	}
	where("pod-link-down", "its link to the bridge, or the bridge, is down", "DOWN", "ip -br link")
	where("forwarding-off", "forwarding is off there, for all or for the bridge", "0",
		"sysctl -a 2>/dev/null | grep -E 'ip_forward |\\.forwarding'")
	where("pod-mute", "the pod drops ICMP, or its route back is missing",
		"no answer from inside either, or no default route",
		"nsenter -t PID -n ip route (PID of the pod's process)")
}

// routed is for a network whose routers lead packets to pods.
func (l *list) routed(to netip.Addr) {
	if l.p.Controller && !l.p.Local {
		l.here("router-route",
			"the network between has no route to the node's subnet, whatever the controller says",
			"a last hop that is not the node", "tracepath -n %v; weft status", to)
	}
}

// host is where the bridge and the pod are.
func (l *list) host() func(code Code, cause, tells, command string, a ...any) *Cause {
	if l.p.Local {
		return l.here
	}
	return l.there
}
