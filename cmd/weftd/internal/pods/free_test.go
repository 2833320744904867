package pods

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/podport"
	"weft/test/await"
)

// While another process has the store of the reservations locked, weftd starts, attaches pods and forgets
// others; the addresses are freed when it lets go, if need be by the next weftd, and until then no pod that
// looks like the former one is attached with them.
func TestNobodyWaitsForALockedStore(t *testing.T) {
	locked, freed := make(chan struct{}), make(chan string, 100)
	var log strings.Builder
	o := Options{
		File: filepath.Join(t.TempDir(), "pods.json"), Boot: "1", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Free: func(r podport.Request) error {
			select {
			case <-locked:
				freed <- r.ID
				return nil
			case <-time.After(10 * time.Millisecond): // with the store it is two seconds
				return errors.New("lock: it stays locked by another process")
			}
		},
	}
	ids := make([]string, 10)
	for i := range ids {
		ids[i] = string(rune('0' + i))
	}
	s, p := attached(t, o, ids...)
	s.save()
	p.close()
	s.Close()

	o.Boot = "2" // none of them outlives that
	free := o.Free
	o.Free = func(podport.Request) error { t.Error("a start waits for the store"); return nil }
	s = New(o)
	o.Free = free
	s.save()
	s.Close()

	s = New(o) // as after an end before anything could be freed
	s.SetLocal(local())
	s.Serve(newPlane(), "")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	if _, err := s.Attach(request("new", "10.42.1.200"), []int{descriptor(t)}); err != nil {
		t.Error(err)
	}
	if _, err := s.Attach(request("0", "10.42.1.201"), []int{descriptor(t)}); err == nil ||
		!strings.Contains(err.Error(), "freed") {
		t.Errorf("a pod whose reservation is about to be freed: %v", err)
	}
	close(locked)
	s.freed <- struct{}{} // what patience does
	for range ids {
		select {
		case <-freed:
		case <-time.After(await.Patience):
			t.Fatal("not all addresses are freed")
		}
	}
	await.OK(t, "the pod can be attached", func() error {
		_, err := s.Attach(request("0", "10.42.1.201"), []int{descriptor(t)})
		return err
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.Close()
	if s = New(o); len(s.owed) != 0 || strings.Count(log.String(), "still reserved") > len(ids) {
		t.Errorf("%d are owed at last; log:\n%s", len(s.owed), log.String())
	}
	s.Close()
}

// A pod is not attached with addresses that are not its own any more.
func TestAddressesHaveToBeReserved(t *testing.T) {
	s, _ := attached(t, Options{Reserved: func(podport.Request) error {
		return errors.New("10.42.1.7 is nobody's")
	}})
	if _, err := s.Attach(request("1", "10.42.1.7"), []int{descriptor(t)}); err == nil ||
		!strings.Contains(err.Error(), "try again") {
		t.Errorf("%v", err)
	}
}
