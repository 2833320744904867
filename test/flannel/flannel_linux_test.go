// Package flannel has a real flanneld as a peer of weft.
package flannel

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"weft/lease"
	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
	"weft/test/netns"
	"weft/test/traffic"
)

func TestMain(m *testing.M) { netns.Main(m) }

// programs returns the paths of flanneld, weftd and weft, or skips the test.
func programs(t *testing.T) (flanneld, weftd, weft string) {
	t.Helper()
	netns.TUN(t, "etcd:etcd-server", "iptables")
	flanneld, bin := os.Getenv("WEFT_FLANNELD"), os.Getenv("WEFT_BIN")
	if flanneld == "" || bin == "" {
		netns.Skip(t, "WEFT_FLANNELD or WEFT_BIN is not set: make test-flannel builds flanneld and weftd, and "+
			"sets both")
	}
	return flanneld, filepath.Join(bin, "weftd"), filepath.Join(bin, "weft")
}

// TestNodeRunsFlannelForAWhile stops weftd on one node of two, runs flanneld there, and then weftd again, as
// docs/flannel.md says. Each keeps the node's subnet, and pods of both nodes reach each other throughout.
func TestNodeRunsFlannelForAWhile(t *testing.T) {
	flanneld, weftd, weft := programs(t)
	type way struct {
		name, backend string
		cleanup       bool // the daemon's own device is in flannel's way, so packets are lost
	}
	ways := []way{
		{"host-gw", `{"Type":"host-gw"}`, false},
		{"vxlan", `{"Type":"vxlan"}`, false},
		{"vxlan in user space", `{"Type":"vxlan","Userspace":"always"}`, true},
		{"udp", `{"Type":"udp"}`, true},
	}
	_ = exec.Command("modprobe", "br_netfilter").Run() // flanneld does not start without it
	// flanneld has these by the kernel only: make test-kernel runs them in guests whose kernels have both.
	for _, kind := range []string{"ipip", "wireguard"} {
		if exec.Command("modprobe", kind).Run() == nil {
			ways = append(ways, way{kind, `{"Type":"` + kind + `"}`, false},
				way{kind + " in user space", `{"Type":"` + kind + `","Userspace":"always"}`, true})
		}
	}
	for _, c := range ways {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, err := lab.Up(t.Context(), lab.Spec{
				WeftdPath: weftd, Nodes: 2, PodsPerNode: 1, Store: lab.Separate,
				NetworkConfig: json.RawMessage(`{"Network":"10.42.0.0/16","EnableIPv6":` +
					strconv.FormatBool(c.name != "udp") + `,"IPv6Network":"fd42::/48","Backend":` + c.backend + `}`),
				Progress: func(line string) { t.Log(line) },
			})
			if err != nil {
				t.Fatal(lab.Explain(err))
			}
			defer l.Close()
			a, b := l.Node(1), l.Node(2)
			talk(t, "before", a.Pods[0], b.Pods[0])
			key := "/coreos.com/network/subnets/" + lease.Subnets{V4: b.Net.V4.Masked(), V6: b.Net.V6.Masked()}.Key()
			record(t, l, key, true)
			var flows []*traffic.Flow
			if !c.cleanup {
				for _, family := range []int{4, 6} {
					from, to := a.Pods[0].Endpoint(family), b.Pods[0].Endpoint(family)
					flows = append(flows, traffic.Start(t, from, to, 500), traffic.Start(t, to, from, 500))
				}
			}

			args := b.Daemon.Args()
			if err := b.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			cleanup := func(args ...string) {
				t.Helper()
				args = append([]string{"cleanup", "--control-socket", b.ControlSocket, "--cache-dir", b.CacheDir},
					args...)
				if out, err := b.Command(t.Context(), weft, args...); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			if c.cleanup {
				cleanup()
			}
			b.Daemon.SetPath(flanneld)
			b.Daemon.SetArgs("--etcd-endpoints="+l.Store.Endpoint(), "--iface=eth0", "--ip-masq", "--subnet-file="+
				b.SubnetFile)
			if err := b.Daemon.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if t.Failed() {
					t.Logf("the end of the log:\n%s", b.Daemon.LogTail(40))
				}
			}()
			record(t, l, key, false)
			cleanup("--rules")
			talk(t, "with flanneld", a.Pods[0], b.Pods[0])
			if c.name == "udp" {
				asUDPPeer(t, weft, a, b)
			}
			if err := b.Daemon.Kill(); err != nil { // flanneld does not always end when it is asked to
				t.Fatal(err)
			}
			b.Daemon.SetPath(weftd)
			b.Daemon.SetArgs(args...)
			if err := b.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			record(t, l, key, true)
			talk(t, "after", a.Pods[0], b.Pods[0])
			for _, f := range flows {
				f.Lossless()
			}
		})
	}
}

// record waits until a record is weft's, or flannel's, by the object that only weft writes.
func record(t *testing.T, l *lab.Lab, key string, wefts bool) {
	t.Helper()
	await.OK(t, fmt.Sprintf("%s is weft's: %v", key, wefts), func() error {
		value, ok, err := l.Store.Get(t.Context(), key)
		if err != nil || !ok {
			return errors.Join(err, fmt.Errorf("there is one: %v", ok))
		}
		var r struct{ Weft json.RawMessage }
		if err := json.Unmarshal([]byte(value), &r); err != nil {
			return err
		}
		if (r.Weft != nil) != wefts {
			return errors.New(value)
		}
		return nil
	})
}

// mtu is what flannel gives its TUN on an underlay of 1,500 bytes.
const mtu = 1472

// asUDPPeer has a, which runs weft, treat b as flannel's udp backend needs it: probes are answered by b's
// kernel, packets of all sizes arrive, and none of them is packed or left to tunnel GSO, which flannel could
// not take apart.
func asUDPPeer(t *testing.T, weft string, a, b *lab.Node) {
	t.Helper()
	before := joined(t, a)
	for _, d := range [][2]*lab.Pod{{a.Pods[0], b.Pods[0]}, {b.Pods[0], a.Pods[0]}} {
		for _, size := range []int{16, mtu - 28, 4000} { // the last in fragments
			f := traffic.StartSized(t, d[0].Endpoint(4), d[1].Endpoint(4), 1000, size)
			f.Passes(500)
			if r := f.Stop(); r.Duplicated > 0 { // flanneld's own buffers may lose some
				t.Errorf("UDP of %d bytes from %s: %s", size, d[0].Name, r)
			}
		}
	}
	talk(t, "as a peer", a.Pods[0], b.Pods[0])
	if now := joined(t, a); now != before {
		t.Errorf("packed datagrams and tunnel GSO: %v, before %v", now, before)
	}
	await.Within(t, await.Timers, "flannel's kernel answers the probes", func() error {
		var answer struct {
			Peers []struct {
				Weft   bool
				Probes []struct {
					By, Answers string
					PathMTU     int `json:"innerPathMTU"`
				}
			}
		}
		out, err := a.Command(t.Context(), weft, "peers", "--json", "--control-socket", a.ControlSocket)
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Peers) != 1 {
			return errors.Join(err, errors.New(string(out)))
		}
		p := answer.Peers[0]
		if p.Weft || len(p.Probes) != 1 || p.Probes[0].By != "icmp" || p.Probes[0].Answers != "yes" ||
			p.Probes[0].PathMTU != mtu {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
}

// joined returns the metrics of a node that count what only weft takes apart.
func joined(t *testing.T, n *lab.Node) (values [2]string) {
	t.Helper()
	metrics, err := n.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, offload := range []string{"pack", "tunnel-gso"} {
		re := regexp.MustCompile(`(?m)^weft_offload_packets_total\{offload="` + offload + `"\} (\S+)$`)
		m := re.FindStringSubmatch(metrics)
		if m == nil {
			t.Fatalf("/metrics lacks offload %s", offload)
		}
		values[i] = m[1]
	}
	return values
}

// talk sends a stream from each pod to the other, and compares the bytes.
func talk(t *testing.T, when string, a, b *lab.Pod) {
	t.Helper()
	for _, d := range [][2]*lab.Pod{{a, b}, {b, a}} {
		from, to := d[0].Endpoint(4), d[1].Endpoint(4)
		if err := lab.Reach(await.Context(t, await.Patience), from, to.Addr); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		const bytes = 4 << 20
		r, err := probe.Stream(await.Context(t, 30*time.Second),
			probe.StreamPlan{From: from, To: to, Bytes: bytes, Verify: true})
		if err != nil || r.Received != bytes {
			t.Errorf("%s: TCP from %s: %d of %d bytes, %v", when, from.Name, r.Received, bytes, err)
		}
	}
}
