package test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"weft/bench/perf"
	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// TestCallsForAMegabyte keeps what can be counted of a path on each wire: how many system calls
// the two daemons make for a megabyte of TCP, which has some 700 segments. A daemon that is
// back at a call for each segment fails, and so does one that has a call too many for each superpacket.
// The first streams do not count: a worker has to find out what the wire takes. Two in a row do, so that
// a way that is taken now and then only is not enough. What is chosen unasked takes no more sends
// than what can be chosen by hand.
func TestCallsForAMegabyte(t *testing.T) {
	t.Parallel()
	paths := []string{"auto", "socket"}
	var mu sync.Mutex
	least := map[lab.WireKind]map[string]int64{}
	t.Cleanup(func() {
		for wire, sends := range least {
			// An acknowledgement more or less is chance.
			if auto, socket := sends["auto"], sends["socket"]; len(sends) == len(paths) && auto > socket+socket/4 {
				t.Errorf("wire %s: both daemons make %d sends for a megabyte by path auto, and %d by path socket", wire, auto, socket)
			}
		}
	})
	for _, wire := range lab.WireKinds() {
		least[wire] = map[string]int64{}
		for _, path := range paths {
			t.Run(fmt.Sprintf("wire=%s path=%s", wire, path), func(t *testing.T) {
				busy(t)
				l := up(t, lab.Spec{
					Wire: wire, Direct: true, Store: lab.Embedded,
					NetworkConfig: json.RawMessage(fmt.Sprintf(`{"Network":"10.42.0.0/16","Backend":{"Type":"udp","Path":%q}}`, path)),
				})
				from, to := l.Pods()[0].Endpoint(4), l.Pods()[1].Endpoint(4)
				reach(t, await.Patience, l.Pods()[0], l.Pods()[1], 4) // the nodes have found each other
				// A megabyte is 17 superpackets and half as many acknowledgements. Each is a send, and a read or two, since one
				// that finds nothing ends a batch. What arrives may have been joined in two pieces.
				const most = 75
				ctx := await.Context(t, 20*time.Second)
				for tries, good := 1, 0; ; tries++ {
					counts := countCalls(t, l, from, to)
					t.Logf("try %d: calls for a megabyte: %s", tries, counts)
					mu.Lock()
					if was, ok := least[wire][path]; !ok || counts.sends() < was {
						least[wire][path] = counts.sends()
					}
					mu.Unlock()
					if good++; counts.most() > most {
						good = 0
					}
					if good == 2 {
						return
					}
					if ctx.Err() != nil || t.Failed() {
						t.Fatalf("calls for a megabyte: %s; want %d of each at most", counts, most)
					}
				}
			})
		}
	}
}

// megabyteCalls are the reads and sends of both daemons, for a megabyte of payload and the acknowledgements.
type megabyteCalls struct{ sender, receiver perf.Count }

func (c megabyteCalls) most() int64 {
	return max(c.sender.Reads, c.sender.Sends, c.receiver.Reads, c.receiver.Sends)
}

func (c megabyteCalls) sends() int64 { return c.sender.Sends + c.receiver.Sends }

func (c megabyteCalls) String() string {
	return fmt.Sprintf("sending node %d reads, %d sends; receiving node %d reads, %d sends", c.sender.Reads, c.sender.Sends, c.receiver.Reads, c.receiver.Sends)
}

func countCalls(t *testing.T, l *lab.Lab, from, to probe.Endpoint) megabyteCalls {
	t.Helper()
	const megabytes = 24
	calls, err := perf.CountCalls(l.Node(1).NS, l.Node(1).Daemon.PID(), l.Node(2).Daemon.PID())
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()
	if _, err := probe.Stream(await.Context(t, 30*time.Second), probe.StreamPlan{From: from, To: to, Bytes: megabytes * 1_000_000}); err != nil {
		t.Fatal(err)
	}
	got, err := calls.Read()
	if err != nil {
		t.Fatal(err)
	}
	each := func(c perf.Count) perf.Count {
		return perf.Count{Reads: c.Reads / megabytes, Sends: c.Sends / megabytes}
	}
	return megabyteCalls{each(got[0]), each(got[1])}
}
