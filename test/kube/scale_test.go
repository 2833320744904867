package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft/test/traffic"
)

// scaleNetwork has room for 32,768 nodes with a /24 each.
const scaleNetwork = "10.128.0.0/9"

// crowd is the number of Node objects: WEFT_NODES, or what the default run has time for.
func crowd(t *testing.T) int {
	text := os.Getenv("WEFT_NODES")
	if text == "" {
		return 100
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 10 || n > 30000 {
		t.Fatalf("WEFT_NODES=%s: want a number from 10 to 30000", text)
	}
	return n
}

// In a cluster of many nodes, which are first listed and then come, change and go, weftd ends up with exactly
// what the API server has, to the last node, and a flow between two pods loses nothing. What that costs is
// printed, and stays within what a DaemonSet's pod may use.
func TestScale(t *testing.T) {
	nodes := crowd(t)
	c := Start(t, Options{ClusterCIDRs: []string{scaleNetwork}})
	o := NodeOptions{NetworkConfig: `{"Network":"` + scaleNetwork + `","Backend":{"Type":"vxlan","Userspace":"never"}}`}
	b := c.AddNode(t, "b", o)
	a := c.PrepareNode(t, "a", o)
	c.Register(t, a, o)
	Until(t, "a's podCIDR", func(ctx context.Context) error {
		obj, err := a.Get(ctx)
		if err == nil && obj.Spec.PodCIDR == "" {
			err = errors.New("not assigned")
		}
		return err
	})
	if err := c.ControllerManager.Kill(); err != nil { // its work for so many nodes is not to be measured
		t.Fatal(err)
	}
	s := &scale{t: t, c: c, want: map[netip.Prefix]netip.Addr{b.Subnets(t)[0]: b.Underlay4}}
	began := time.Now()
	s.each(nodes, s.create)
	t.Logf("%d Node objects of some %d bytes made in %s", nodes, s.size(), time.Since(began).Round(time.Millisecond))

	began = time.Now()
	a.Up(t)
	s.converged(a, began, "started")
	pods := []*Pod{a.AddPod(t), b.AddPod(t)}
	AllReach(t, pods, 4)
	flow := traffic.Start(t, pods[0].Endpoint(4), pods[1].Endpoint(4), 500)
	for _, phase := range []struct {
		name        string
		nodes, from int
		change      func(int)
	}{
		{"heartbeats of all", nodes, 0, s.heartbeat},
		{"all move", nodes, 0, s.move},
		{"a tenth leave", nodes / 10, 0, s.delete},
		{"as many come", nodes / 10, nodes, s.create},
	} {
		began, cpu := time.Now(), a.cpu(t)
		s.each(phase.nodes, func(i int) { phase.change(phase.from + i) })
		wrote := time.Since(began)
		s.converged(a, time.Now(), phase.name)
		t.Logf("%s: %d changes written in %s; weftd used %s of a processor: %s a change", phase.name, phase.nodes, wrote.Round(time.Millisecond),
			a.cpu(t)-cpu, ((a.cpu(t) - cpu) / time.Duration(phase.nodes)).Round(time.Microsecond))
	}
	s.kernelAgrees(a)
	flow.Lossless()
}

// scale makes and changes many nodes, and keeps what weftd should know of them.
type scale struct {
	t *testing.T
	c *Cluster

	mu   sync.Mutex
	want map[netip.Prefix]netip.Addr
}

// each runs change for 0 to n-1, many at a time.
func (s *scale) each(n int, change func(int)) {
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 16 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				change(i)
			}
		})
	}
	wg.Wait()
}

func scaleName(i int) string { return fmt.Sprintf("worker-%05d.example.internal", i) }

// scaleSubnet returns the subnet of node i, above those that the controller gave to a and b.
func scaleSubnet(i int) netip.Prefix {
	i += 256
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128 + byte(i>>8), byte(i), 0}), 24)
}

func scaleAddress(i int, moved bool) netip.Addr {
	a := [4]byte{198, 19, byte(i >> 8), byte(i)}
	if moved {
		a[2] |= 0x80
	}
	return netip.AddrFrom4(a)
}

func (s *scale) expect(i int, at netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.want[scaleSubnet(i)] = at; !at.IsValid() {
		delete(s.want, scaleSubnet(i))
	}
}

// create makes a node with as much in its object as a kubelet puts there.
func (s *scale) create(i int) {
	at := scaleAddress(i, false)
	obj := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        scaleName(i),
			Annotations: FlannelAnnotations(at, netip.Addr{}, fmt.Sprintf("02:00:00:00:%02x:%02x", i>>8, i&0xff), ""),
			Labels: map[string]string{
				"kubernetes.io/hostname": scaleName(i), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
				"topology.kubernetes.io/zone": "zone-" + strconv.Itoa(i%3), "node.kubernetes.io/instance-type": "example.large",
			},
		},
		Spec:   corev1.NodeSpec{PodCIDR: scaleSubnet(i).String(), PodCIDRs: []string{scaleSubnet(i).String()}},
		Status: kubeletStatus(at),
	}
	if _, err := s.c.Admin.CoreV1().Nodes().Create(s.t.Context(), obj, metav1.CreateOptions{}); err != nil {
		s.t.Error(err)
		return
	}
	s.expect(i, at)
}

// kubeletStatus returns a status with a kubelet's conditions and with the most images that it reports: 50, here of
// three names each.
func kubeletStatus(at netip.Addr) corev1.NodeStatus {
	st := corev1.NodeStatus{
		Capacity:  corev1.ResourceList{"cpu": resource.MustParse("16"), "memory": resource.MustParse("64Gi"), "pods": resource.MustParse("110")},
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: at.String()}},
		NodeInfo:  corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", KernelVersion: "6.18.0", ContainerRuntimeVersion: "containerd://2.2.0"},
	}
	for _, kind := range []corev1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"} {
		st.Conditions = append(st.Conditions, corev1.NodeCondition{Type: kind, Status: "False", Reason: "Kubelet", Message: "kubelet has no complaint"})
	}
	for i := range 50 {
		name := fmt.Sprintf("registry.example.com/team/application-%d", i)
		st.Images = append(st.Images, corev1.ContainerImage{SizeBytes: 1 << 27, Names: []string{
			name + "@sha256:" + strings.Repeat("0123456789abcdef", 4), name + ":latest", name + ":v1.2.3"}})
	}
	return st
}

func (s *scale) patch(i int, subresource string, v any) {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = s.c.Admin.CoreV1().Nodes().Patch(s.t.Context(), scaleName(i), types.StrategicMergePatchType, text, metav1.PatchOptions{}, subresource)
	}
	if err != nil {
		s.t.Error(err)
	}
}

// heartbeat writes what a kubelet writes every five minutes. Nothing in it concerns weftd.
func (s *scale) heartbeat(i int) {
	now := metav1.Now()
	s.patch(i, "status", map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{
		{Type: "Ready", Status: "True", Reason: "Kubelet", Message: "alive", LastHeartbeatTime: now, LastTransitionTime: now}}}})
}

func (s *scale) move(i int) {
	at := scaleAddress(i, true)
	s.patch(i, "status", map[string]any{"metadata": map[string]any{"annotations": map[string]any{AnnotationPrefix + "public-ip": at.String()}}})
	s.expect(i, at)
}

func (s *scale) delete(i int) {
	if err := s.c.Admin.CoreV1().Nodes().Delete(s.t.Context(), scaleName(i), metav1.DeleteOptions{}); err != nil {
		s.t.Error(err)
		return
	}
	s.expect(i, netip.Addr{})
}

// size returns how many bytes one Node object has in JSON.
func (s *scale) size() int {
	obj, err := s.c.Admin.CoreV1().Nodes().Get(s.t.Context(), scaleName(0), metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := json.Marshal(obj)
	if err != nil {
		s.t.Fatal(err)
	}
	return len(text)
}

// converged waits until n's peers are exactly the nodes that there should be, each at its address.
func (s *scale) converged(n *Node, since time.Time, what string) {
	s.t.Helper()
	Until(s.t, n.Object+" knows what the API server has", func(ctx context.Context) error {
		peers, err := n.Peers(ctx)
		if err != nil {
			return err
		}
		wrong := ""
		for _, p := range peers {
			if len(p.Subnets) != 1 || s.want[p.Subnets[0]] != p.Address {
				wrong = fmt.Sprintf("; %v at %s is not wanted there", p.Subnets, p.Address)
			}
		}
		if len(peers) != len(s.want) || wrong != "" {
			return fmt.Errorf("%d peers, want %d%s", len(peers), len(s.want), wrong)
		}
		return nil
	})
	s.t.Logf("%s: %d peers known after %s; %s", what, len(s.want), time.Since(since).Round(time.Millisecond), n.memory(s.t))
}

// kernelAgrees waits until the kernel has the routes and forwarding entries of every node.
func (s *scale) kernelAgrees(n *Node) {
	Until(s.t, "the kernel has every node", func(ctx context.Context) error {
		routes, err := n.Command(ctx, "ip", "-4", "route", "show", "dev", "flannel.1")
		if err != nil {
			return err
		}
		fdb, err := n.Command(ctx, "bridge", "fdb", "show", "dev", "flannel.1")
		if err != nil {
			return err
		}
		for subnet, at := range s.want {
			if !strings.Contains(string(routes), subnet.String()+" via ") || !strings.Contains(string(fdb), " dst "+at.String()+" ") {
				return fmt.Errorf("not %s at %s", subnet, at)
			}
		}
		if got := strings.Count(string(routes), " via "); got != len(s.want) {
			return fmt.Errorf("%d routes, want %d", got, len(s.want))
		}
		return nil
	})
}

// cpu is the processor time that n's weftd has used (proc(5): utime and stime, in ticks of 10 ms).
func (n *Node) cpu(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.Daemon.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), ") ")
	var sum time.Duration
	for _, field := range strings.Fields(after)[11:13] {
		ticks, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(ticks) * 10 * time.Millisecond
	}
	return sum
}

// memory returns how much n's weftd has resident now, and the most it has had.
func (n *Node) memory(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.Daemon.PID()))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if name, value, _ := strings.Cut(line, ":"); name == "VmRSS" || name == "VmHWM" || name == "RssAnon" {
			out = append(out, name+" "+strings.Join(strings.Fields(value), " "))
		}
	}
	return strings.Join(out, ", ")
}
