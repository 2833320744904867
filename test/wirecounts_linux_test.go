package test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"weft/bench/perf"
	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// TestCallsForAMegabyte keeps what can be counted of a path on each wire: how many system calls
// the two daemons make for a megabyte of TCP, which has some 700 segments. A daemon that is
// back at a call for each segment fails. The first streams do not count: a worker has to find
// out what the wire takes. Two in a row do, so that a way that is taken now and then only is not enough.
func TestCallsForAMegabyte(t *testing.T) {
	t.Parallel()
	for _, wire := range lab.WireKinds() {
		for _, path := range []string{"auto", "socket"} {
			t.Run(fmt.Sprintf("wire=%s path=%s", wire, path), func(t *testing.T) {
				busy(t)
				l := up(t, lab.Spec{
					Wire: wire, Direct: true, Store: lab.Embedded,
					NetworkConfig: json.RawMessage(fmt.Sprintf(`{"Network":"10.42.0.0/16","Backend":{"Type":"udp","Path":%q}}`, path)),
				})
				from, to := l.Pods()[0].Endpoint(4), l.Pods()[1].Endpoint(4)
				const most = 150 // calls; 700 is one for each segment
				ctx := await.Context(t, 20*time.Second)
				for tries, good := 1, 0; ; tries++ {
					counts := countCalls(t, l, from, to)
					t.Logf("try %d: calls for a megabyte: %s", tries, counts)
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
