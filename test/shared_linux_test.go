package test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/traffic"
)

// commons are the labs that tests share, by network config. Each has two nodes with a pod each and a separate
// store, is built by the first test that asks for it, and stays until the last one has ended.
var commons = sharedLabs{labs: map[string]*lab.Lab{}}

type sharedLabs struct {
	mu   sync.Mutex
	labs map[string]*lab.Lab
}

// shared makes a test one that runs beside others, in a lab that tests before it had too, one at a time. It
// is for tests that ask, send and look, and leave the lab as they found it: what they stop they start again,
// what they put into the store or into a host they take away, and they compare counters with what these were
// before. One that leaves the lab otherwise fails, and the next one gets a new lab. What the test gets ready,
// such as a host on the wire, goes with it by Cleanup, before the lab is looked at.
func shared(t *testing.T, config string) *lab.Lab {
	t.Helper()
	lend(t, config)
	commons.mu.Lock()
	l := commons.labs[config]
	commons.mu.Unlock()
	if l == nil {
		l = raise(t, lab.Spec{Name: "shared", NetworkConfig: json.RawMessage(config)})
		commons.mu.Lock()
		commons.labs[config] = l
		commons.mu.Unlock()
	}
	t.Cleanup(func() {
		err := asFound(l)
		if err != nil {
			t.Errorf("the test leaves the shared lab other than it found it: %v", err)
		}
		sayLogs(t, l)
		if err != nil {
			commons.mu.Lock()
			delete(commons.labs, config)
			commons.mu.Unlock()
			l.Close()
		}
	})
	return l
}

// asFound waits until a lab is as one that has just been built, and says what is different if it does not
// become so.
func asFound(l *lab.Lab) (err error) {
	// a test's own has ended at its cleanup
	ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		now := unlike(ctx, l)
		if now == nil {
			return nil
		}
		if err == nil || ctx.Err() == nil {
			err = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

func unlike(ctx context.Context, l *lab.Lab) error {
	for _, n := range l.Nodes() {
		s, err := ask[statusJSON](ctx, n, "status")
		if err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		if !s.Ready || s.Peers != len(l.Nodes())-1 || s.Rejected != 0 || !s.Backend.InPlace ||
			len(s.Backend.Notes) > 0 {
			return fmt.Errorf("%s: ready %v %q, %d peers, %d records rejected, %+v", n.Name, s.Ready, s.NotReady,
				s.Peers, s.Rejected, s.Backend)
		}
	}
	return nil
}

// close takes all of them down.
func (s *sharedLabs) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.labs {
		l.Close()
	}
}

// flowOf sends 1,000 packets a second from one pod to another.
func flowOf(t *testing.T, from, to *lab.Pod) *traffic.Flow {
	t.Helper()
	return traffic.Start(t, from.Endpoint(4), to.Endpoint(4), 1000)
}
