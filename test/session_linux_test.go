package test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/session"
	"weft/test/netns"
	"weft/test/talk"
)

// tenants are the hosts of a lab in which only ordinary users do anything. Root has made the wire, and has no
// process there afterwards.
type tenants struct {
	*lab.Lab
	t *testing.T
}

// talkerPath makes test/cmd/talker.
var talkerPath = sync.OnceValues(func() (string, error) {
	path := filepath.Join(madeDir, "talker")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./cmd/talker")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
	}
	return path, nil
})

// userHosts makes so many hosts for ordinary users, with an address in 192.0.2.0/24 besides the wire's own:
// host N has 192.0.2.N. more are programs for everybody's $PATH.
func userHosts(t *testing.T, hosts int, wire string, more ...string) tenants {
	t.Helper()
	netns.Root(t, "only root can become several users")
	talker, err := talkerPath()
	if err != nil {
		t.Fatal(err)
	}
	l := up(t, lab.Spec{Nodes: hosts, Driver: lab.Bare, Wire: wire})
	for _, n := range l.Nodes() {
		if _, err := n.Command(t.Context(), "ip", "address", "add", fmt.Sprintf("192.0.2.%d/24", n.Index), "dev",
			"eth0"); err != nil {
			t.Fatal(err)
		}
		if err := session.Open(n.Host, append([]string{command(t, "weftd"), command(t, "weft"), talker},
			more...)...); err != nil {
			t.Fatal(err)
		}
	}
	return tenants{l, t}
}

// run lets a user run a command on a host, and returns its standard output.
func (h tenants) run(host int, u session.User, o session.Options, program string, args ...string) (string,
	error) {
	cmd := session.Command(u, o, program, args...)
	var out, fault bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &fault
	if err := h.Node(host).NS.Run(cmd); err != nil {
		return out.String(), fmt.Errorf("%s on host %d: %s %q: %w: %s", u.Name, host, program, args, err,
			fault.String())
	}
	return out.String(), nil
}

// talker starts a talker on a host, by a program that executes what its last arguments are, such as unshare.
func (h tenants) talker(host int, u session.User, o session.Options, by ...string) *talk.Talker {
	h.t.Helper()
	return h.talkerOf(host, u, o, append(by, session.Bin+"/talker")...)
}

// talkerOf starts a command that is, or becomes, a talker.
func (h tenants) talkerOf(host int, u session.User, o session.Options, argv ...string) *talk.Talker {
	h.t.Helper()
	name := fmt.Sprintf("%s's on host %d", u.Name, host)
	k, err := talk.Start(name, session.Command(u, o, argv[0], argv[1:]...), h.Node(host).NS.Start)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(k.Close)
	return k
}

// daemon makes a daemon that a user runs on a host. Its log is the user's affair, but the test reads it.
func (h tenants) daemon(host int, u session.User, o session.Options, name, program string,
	args ...string) *lab.Daemon {
	h.t.Helper()
	n := h.Node(host)
	argv := session.Argv(u, o, program, args...)
	log := filepath.Join(n.Dir, fmt.Sprintf("%s-%s.log", u.Name, name))
	d := lab.NewDaemon(n.Host, fmt.Sprintf("%s's %s on host %d", u.Name, name, host), log, argv[0], argv[1:]...)
	h.t.Cleanup(func() {
		switch text := d.LogTail(1000); {
		case bytes.Contains(text, []byte("DATA RACE")), bytes.Contains(text, []byte("panic:")):
			h.t.Errorf("%s:\n%s", d.Name, text)
		case h.t.Failed():
			h.t.Logf("%s:\n%s", d.Name, d.LogTail(30))
		}
	})
	return d
}

// network is a user's: a store, and the configuration that the first weftd writes there.
type network struct{ url, config string }

// etcd lets a user run a store on a host.
func (h tenants) etcd(host int, u session.User, port int, config string) network {
	h.t.Helper()
	netns.Programs(h.t, "etcd:etcd-server")
	url := fmt.Sprintf("http://192.0.2.%d:%d", host, port)
	peer := fmt.Sprintf("http://127.0.0.1:%d", port+1)
	d := h.daemon(host, u, session.Options{}, "etcd", "etcd", "--name=lab", "--data-dir="+u.Home()+"/etcd",
		"--listen-client-urls="+url,
		"--advertise-client-urls="+url, "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=lab="+peer)
	if err := d.Start(); err != nil {
		h.t.Fatal(err)
	}
	return network{url, config}
}

// address is what a talker's namespace has of the overlay in a family, once it has one.
func address(t *testing.T, k *talk.Talker, family int) (a talk.Address) {
	t.Helper()
	await.OK(t, fmt.Sprintf("%s has an IPv%d address", k.Name, family), func() error {
		r, err := k.Ask(talk.Request{Addresses: true})
		if err != nil {
			return err
		}
		for _, a = range r.Addresses {
			in := netip.MustParsePrefix("10.42.0.0/16")
			if family == 6 {
				in = netip.MustParsePrefix("fd42::/48")
			}
			if in.Contains(a.Prefix.Addr()) {
				return nil
			}
		}
		return fmt.Errorf("it has %v", r.Addresses)
	})
	return a
}

// allTalk lets every talker talk to every other one, in each family that the network has, with packets up to
// the MTU.
func allTalk(t *testing.T, families []int, all []*talk.Talker) {
	t.Helper()
	var targets [][]talk.Target // of each talker
	for _, k := range all {
		var own []talk.Target
		for _, f := range families {
			a := address(t, k, f)
			own = append(own, talk.Target{Addr: a.Prefix.Addr(), MTU: a.MTU})
		}
		targets = append(targets, own)
	}
	faults := make([]error, len(all))
	var wg sync.WaitGroup
	start := time.Now()
	for i, k := range all {
		wg.Go(func() {
			var r talk.Request
			for j := range all {
				if i != j {
					r.Talk = append(r.Talk, targets[j]...)
				}
			}
			reply, err := k.Ask(r)
			if want := 3 * len(r.Talk); err == nil && reply.Talked != want {
				err = fmt.Errorf("%s: %d conversations, want %d", k.Name, reply.Talked, want)
			}
			faults[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(faults...); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d namespaces: all pairs talk, IPv%v, after %s", len(all), families,
		time.Since(start).Round(time.Millisecond))
}

// unprivileged checks that each process of the hosts is an ordinary user's, and that outside of user
// namespaces of their own they have no capability.
func (h tenants) unprivileged() {
	h.t.Helper()
	ours, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, n := range h.Nodes() {
		looked := 0
		err := n.Do(func() error { // there /proc has this host's processes, and no others
			pids, err := filepath.Glob("/proc/[0-9]*")
			for _, p := range pids {
				status, err := os.ReadFile(p + "/status")
				space, err2 := os.Readlink(p + "/ns/user")
				if err != nil || err2 != nil {
					continue // it has ended
				}
				looked++
				fields := map[string]string{}
				for line := range strings.Lines(string(status)) {
					key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
					fields[key] = strings.TrimSpace(value)
				}
				none := fields["CapEff"] == noCapability && fields["CapPrm"] == noCapability
				ids := strings.Fields(fields["Uid"])
				if len(ids) != 4 || ids[0] == "0" || ids[1] == "0" || ids[2] == "0" || space == ours && !none {
					h.t.Errorf("%s: %s (%s): ids %q, CapEff %s in %s", n.Name, fields["Name"], p, ids,
						fields["CapEff"], space)
				}
			}
			return err
		})
		if err != nil || looked == 0 {
			h.t.Errorf("%s: looked at %d processes: %v", n.Name, looked, err)
		}
	}
}

const noCapability = "0000000000000000"
