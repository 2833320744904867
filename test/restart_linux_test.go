package test

import (
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/traffic"
)

// A weftd that is stopped or killed and started again takes up its device and its last known peers before it asks the
// store. So packets flow again, each once and in order, also while there is no store.
func TestRestartWithoutAStore(t *testing.T) {
	l := shared(t, ipv4Only)
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	reach(t, await.Patience, a, b, 4)
	reach(t, await.Patience, b, a, 4)
	for _, store := range []string{"up", "down"} {
		if store == "down" {
			if err := l.Store.Daemon.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
			flows := []*traffic.Flow{flowOf(t, a, b), flowOf(t, b, a)}
			d := b.Node.Daemon
			if err := d.Signal(sig); err != nil {
				t.Fatal(err)
			}
			<-d.Exited()
			if err := d.ExitError(); sig == unix.SIGTERM && err != nil {
				t.Errorf("asked to stop: %v", err)
			}
			if err := d.Start(); err != nil {
				t.Fatal(err)
			}
			for _, f := range flows {
				f.Passes(500)
				if r := f.Stop(); r.Duplicated > 0 || r.Reordered > 0 {
					t.Errorf("%s, store %s: %s", unix.SignalName(sig), store, r)
				}
			}
		}
	}
	if err := l.Store.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Node.WaitReady(t.Context()); err != nil {
		t.Error(lab.Explain(err))
	}
}

// flowOf sends 1,000 packets a second from one pod to another.
func flowOf(t *testing.T, from, to *lab.Pod) *traffic.Flow {
	t.Helper()
	return traffic.Start(t, from.Endpoint(4), to.Endpoint(4), 1000)
}
