package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"weft/lease/subnetenv"
	"weft/test/lab/probe"
)

// queued is how long nobody may read before the TUN's queue, 1,000 packets, is full.
const queued = 900 * time.Millisecond

// rollsOut does what the controller of a DaemonSet with maxSurge does: it starts a second pod beside k, and
// ends k's when that is ready. Of packets between k and from, a thousand a second each way, none is lost.
func (k *kubelet) rollsOut(t *testing.T, from *kubelet) {
	t.Helper()
	ends := []probe.Endpoint{from.endpoint(t), k.endpoint(t)}
	Reach(t, ends[0], ends[1])
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	var streams []*probe.Paced
	for i, e := range ends {
		s, err := probe.StartPaced(ctx, probe.PacedPlan{From: e, To: ends[1-i], Count: 120_000,
			Wait: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	flow := func(what string) {
		t.Helper()
		for _, s := range streams {
			_, before := s.Progress()
			Until(t, "packets flow "+what, func(context.Context) error {
				if _, got := s.Progress(); got < before+1000 {
					return fmt.Errorf("%d more came", got-before)
				}
				return nil
			})
		}
	}
	flow("before")
	old := k.serving(t)
	next := &kubelet{cluster: k.cluster, host: k.host, dir: t.TempDir(), root: k.root}
	if err := os.Symlink(filepath.Join(k.dir, "host"), filepath.Join(next.dir, "host")); err != nil {
		t.Fatal(err)
	}
	next.pod = k.cluster.schedule(t, k.pod.Namespace, "weft", k.pod.Spec.NodeName)
	next.Start(t)
	Until(t, "the second pod is ready in the first one's place", func(ctx context.Context) error {
		if now := next.serving(t); now == old {
			return fmt.Errorf("pid %d serves still", old)
		}
		return next.probe(ctx, next.pod.Spec.Containers[0].ReadinessProbe)
	})
	flow("beside the first pod")
	k.end()
	flow("without the first pod")
	enough()
	for i, s := range streams {
		r := s.Wait()
		t.Logf("from %s: %s", ends[i].Name, r)
		if r.Lost > 0 && r.LongestSilence < queued {
			t.Errorf("from %s: %s, outages %v", ends[i].Name, r, r.Outages)
		}
	}
}

// endpoint is the node's own address on the overlay.
func (k *kubelet) endpoint(t *testing.T) probe.Endpoint {
	t.Helper()
	file, err := subnetenv.Read(k.hostPath("/run/flannel/subnet.env"))
	if err != nil {
		t.Fatal(err)
	}
	return probe.Endpoint{Name: k.pod.Spec.NodeName, NS: k.host.NS, Addr: file.Subnet.Masked().Addr()}
}

// serving is the process of the node's weftd; 0 while none answers.
func (k *kubelet) serving(t *testing.T) int {
	t.Helper()
	var status struct{ PID int }
	text, err := k.Exec(t.Context(), "weft", "status", "--json")
	if err != nil || json.Unmarshal([]byte(text), &status) != nil {
		return 0
	}
	return status.PID
}
