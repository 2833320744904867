package doctor

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/socket"
	"weft/lease"
	"weft/tunnel/port"
)

func checkDaemon(f *Facts) findings {
	d := f.Daemon
	pid := ""
	if d.PID != 0 {
		pid = fmt.Sprintf(" (pid %d)", d.PID)
	}
	switch {
	case !d.Asked:
		return says(Unknown, "was not asked")
	case d.MayOpen > 0 && d.Descriptors >= d.MayOpen:
		out := says(Fault, "weftd%s has the %d descriptors open that it may have: new connections, also to the "+
			"store, fail", pid, d.MayOpen)
		out.last().Observed = true
		return out.because("RLIMIT_NOFILE is too low").
			do("prlimit --pid %d --nofile=65536; LimitNOFILE= in weftd's unit", d.PID)
	case errors.Is(d.Err, control.ErrNoDaemon):
		start := "systemctl start weftd; journalctl -u weftd -e has why it ended"
		if f.Settings.Kube.On || f.Settings.NotKnown != "" {
			start += "; on a node of Kubernetes: kubectl get pods -A -o wide | grep weft, kubectl logs -p"
		}
		return says(Warning, "weftd does not run here, or not with this control socket: what is said below is "+
			"what a start would meet").do("%s", start)
	case errors.Is(d.Err, control.ErrStuck) && socket.Stopped(d.PID):
		return says(Fault, "weftd%s runs and does not answer", pid).because("somebody stopped it (state T)").
			do("kill -CONT %d", d.PID)
	case errors.Is(d.Err, control.ErrStuck):
		return says(Fault, "weftd%s runs and does not answer: %v", pid, d.Err).
			do("systemctl restart weftd, after its log was kept: journalctl -u weftd -e")
	case d.Err != nil:
		return says(Unknown, "weftd could not be asked: %v", d.Err)
	}
	var out findings
	if !d.Status.Ready {
		for _, why := range d.Status.NotReady {
			out = out.says(Fault, "weftd is not ready: %s", why).do("journalctl -u weftd -e has more of it")
		}
	}
	if d.Elsewhere {
		out = out.says(Warning, "weftd runs in another network namespace, and what is said below is about this "+
			"one").do("nsenter --net --target %d weft doctor", d.PID)
	}
	for i, n := range d.Status.Notes {
		var code control.Code
		if i < len(d.Status.NoteCodes) {
			code = d.Status.NoteCodes[i]
		}
		if code == control.NoPeerAnswers {
			continue // check peer-answers says more
		}
		out = out.says(Note, "weftd says: %s", n)
		switch code {
		case control.ForgedSource:
			out.do("weft capture --dropped shows the packets; make a pod of a former subnet anew")
		case control.CacheNotSaved:
			// df(1) follows /proc/PID/root to the path of the same name here.
			out.do("stat -f %s shows free blocks and inodes; free what fills it, and weftd saves again by itself",
				f.Settings.CacheDir)
		default: // the others say what to do
		}
	}
	return append(out, f.savedByOthers()...).orOK("weftd%s answers and is ready", pid)
}

// savedByOthers looks whether the last state is that of another weftd, which so has the same directory. weftd
// saves its own as soon as it has a lease, and notes if it cannot.
func (f *Facts) savedByOthers() findings {
	st, saved := f.Daemon.Status, f.Network.Saved
	switch l := st.Lease; {
	case l == nil || !l.Held || saved.Subnets == (lease.Subnets{}):
	case saved.Subnets == lease.Subnets{V4: l.Subnet, V6: l.IPv6Subnet} &&
		(saved.Node() == st.NodeID || f.Settings.Kube.On):
	case !st.Ready, slices.Contains(st.NoteCodes, control.CacheNotSaved): // it may have saved nothing yet
	default:
		return says(Warning, "the last state is that of %s with %s, as another weftd saved it: a start without "+
			"the store would not know this node's", saved.Called(), saved.Subnets).about(f.Settings.CacheDir).
			do("pgrep -af weftd shows the flags of each here; give each its own --cache-dir, and restart this one")
	}
	return nil
}

// checkCustody looks at who keeps pods' descriptors for the next weftd.
func checkCustody(f *Facts) findings {
	d, h, k := f.Daemon, f.Daemon.Holder, f.Daemon.Status.Custody
	switch {
	case !d.Answers() && d.HolderErr != nil:
		return says(Unknown, "the holder of pods' descriptors could not be asked: %v", d.HolderErr)
	case !d.Answers() && h.Descriptors > 0:
		return says(Warning, "weftd ended %s ago, and a holder (pid %d) keeps %d of its descriptors for %s more; "+
			"pods that are attached directly reach nobody until it runs again, and have to be attached again if it "+
			"does not run by then", h.AwayFor().Round(time.Second), h.PID, h.Descriptors,
			h.LeftFor().Round(time.Second)).
			do("systemctl start weftd; weft cleanup, if it is not to run again")
	case !d.Answers():
		return says(OK, "no holder waits for a weftd")
	case k == nil:
		return says(OK, "no pod is attached directly, so there is nothing to keep")
	case k.Fault != "":
		what := "would cut off pods that are attached directly"
		if k.Items == 0 {
			what = "loses packets"
		}
		return says(Warning, "a restart of weftd %s", what).because("%s", k.Fault).
			do("weft status; docs/operations.md")
	}
	return says(OK, "%d descriptors of %d pods and %d of weftd's own ports are kept by the %s", k.Descriptors,
		k.Items, k.PortDescriptors, k.By)
}

// checkPods looks at whether the pods that are attached directly carry anything.
func checkPods(f *Facts) findings {
	p := f.Daemon.Status.Pods
	if !f.Daemon.Answers() || p == nil {
		return says(OK, "no pod is attached directly")
	}
	var out findings
	if p.Missing > 0 {
		out = out.says(Fault, "%d of %d directly attached pods have no port, and reach nobody: weftd was "+
			"restarted, and nobody had kept the descriptors of their interfaces", p.Missing,
			p.Attached+p.Waiting+p.Missing).
			do("weft pods says how each is attached again; docs/operations.md has how they are kept")
	}
	if p.Waiting > 0 {
		out = out.says(Warning, "%d directly attached pods wait for their port, and reach nobody until they "+
			"have it; weftd tries again", p.Waiting).
			do("weft pods has the reason of each; weft status, that of the data plane")
	}
	if other := p.Problems - p.Missing - p.Waiting; other > 0 {
		out = out.says(Warning, "%d directly attached pods have a port, and a problem", other).
			do("weft pods names it, with what to do")
	}
	return out.orOK("%d directly attached pods have their ports", p.Attached)
}

// checkWayOut looks at where the TUN's network namespace leads, if that is not the host's.
func checkWayOut(f *Facts) findings {
	n := f.Daemon.Status.Namespace
	switch {
	case !f.Daemon.Answers() || n == nil:
		return says(OK, "packets to neither pods nor peers take this host's routes")
	case n.Out == nil:
		return says(Unknown, "the network namespace of the TUN was not looked into")
	case n.Out.IPv4 == "" && n.Out.IPv6 == "":
		return says(Note, "pods reach each other, and nothing else: the network namespace of the TUN has no "+
			"default route").do("have slirp4netns or pasta in that namespace if they are to reach more " +
			"(docs/rootless.md); an overlay for itself needs neither")
	case !n.Out.Masquerade:
		return says(Note, "what pods send to others than pods gets no answer where slirp4netns or pasta carry it, "+
			"which know the namespace's own address only").do("start weftd with --ip-masq")
	}
	return says(OK, "packets to neither pods nor peers leave the TUN's network namespace by its default route")
}

// checkEncryption looks at whether the peers of backend wireguard have a session where packets are for them,
// and with Backend.Encrypt at whether the rules are there that nothing else passes.
func checkEncryption(f *Facts) findings {
	var out findings
	if s := f.Daemon.Status; s.Backend.Encrypt != "" && !s.Rules.InPlace {
		out = out.says(Fault, "packets of the overlay could come or go in plain, which Encrypt %q forbids",
			s.Backend.Encrypt).because("weft's rules are not in this host's firewall: %s", s.Rules.LastError).
			do("make nftables or iptables work for weftd; weft status shows when the rules are in place")
	}
	for _, p := range f.Daemon.Peers.Peers {
		for _, x := range p.Encryption {
			if x.Likely != "" {
				out = out.says(Fault, "%s is not heard by %s: %s", p.Name, x.Device, x.Likely).do("%s", x.Look)
			}
		}
	}
	return out.orOK("peers have sessions where packets are for them, or nothing is encrypted")
}

// checkRoutes looks at what the controller of a network of type route-hook says of this node's routes, and at
// the files with which it is asked.
func checkRoutes(f *Facts) findings {
	var out findings
	if f.HookErr != nil {
		out = out.says(Fault, "the controller of routes cannot be asked: %v", f.HookErr).
			do("put the file right; it is read for each request, and no restart is needed")
	}
	c := f.Daemon.Status.Controller
	if !f.Daemon.Answers() || c == nil {
		return out.orOK("no controller programs this network's routes: the backend is not route-hook, or weftd " +
			"does not run")
	}
	if c.Fault != "" {
		verdict, since, login := Warning, "", ""
		if c.Taken.IsZero() {
			verdict = Fault // nothing says that packets pass
		}
		if !c.Since.IsZero() {
			since = " for " + f.Now.Sub(c.Since).Round(time.Second).String()
		}
		h := f.Settings.Hook
		if h.TokenFile != "" {
			login = `-H "Authorization: Bearer $(head -n1 ` + h.TokenFile + `)" `
		}
		out = out.says(verdict, "the controller of routes does not take this node's view%s", since).
			because("%s", c.Fault). // as weftd observed
			do("%s asks it for the view; what it accepted before stays as it is",
				curl(login+c.Controller, h.CAFile, h.CertFile, h.KeyFile))
	}
	if c.Refused > 0 {
		out = out.says(Fault, "the controller of routes refuses %d of %d routes", c.Refused, c.Accepted+
			c.Pending+c.Refused).do("weft peers has its reasons, and weft status those for this node's own")
	}
	if c.Pending > 0 {
		out = out.says(Note, "%d routes are pending at the controller, which has not seen them in place yet",
			c.Pending).
			do("wait a minute; then look at the controller at %s", c.Controller)
	}
	return out.orOK("the controller at %s says that all %d routes are in place", c.Controller, c.Accepted)
}

// malformed is how many packets of each peer, by its name, were dropped as malformed.
func malformed(all control.Peers) map[string]uint64 {
	out := map[string]uint64{}
	for _, p := range all.Peers {
		for _, d := range p.Drops {
			if d.Reason == port.DropMalformed.String() {
				out[p.Name] += d.Packets
			}
		}
	}
	return out
}

// checkPeerPackets looks whether what comes from peers that are there can be read. A peer that answers sends
// what its own data plane made, so that the fault is on the way, or in how it is received here.
func checkPeerPackets(f *Facts) findings {
	before, after := malformed(f.Daemon.Peers), malformed(f.Daemon.Later)
	var out findings
	for _, p := range f.Daemon.Peers.Peers {
		if n := after[p.Name]; n > before[p.Name] { // it is less of one that was taken up anew
			out = out.says(Fault, "%d of its packets were dropped as malformed while this looked: a device on the "+
				"way, or the kernel here, changes or joins datagrams such that path %s cannot read them",
				n-before[p.Name],
				f.Daemon.Status.Backend.Path).about(p.Name).
				do(`weft capture shows them; "Path":"portable" in Backend of the network configuration takes ` +
					"datagrams one by one; weft report has what a report of this fault needs")
		}
	}
	return out.orOK("none is dropped as malformed")
}
