package overlay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weft/bench/load"
	"weft/bench/perf"
	"weft/bench/plan"
)

// Costs implements plan.Costing. It leaves out counts that this machine lacks, and Costs.Missing says why.
func (b *testbed) Costs(ctx context.Context, streams int, warmUp, last time.Duration) (r plan.Costs,
	err error) {
	missing := func(what string, err error) {
		r.Missing = append(r.Missing, fmt.Errorf("%s is left out: %w", what, err))
	}
	var calls *perf.Calls
	pids := b.pids()
	if len(pids) > 0 {
		if calls, err = perf.CountCalls(b.from.NS, pids...); err != nil {
			missing("What daemons read and send in a system call", err)
		} else {
			defer calls.Close()
		}
	}
	around := func() (func() error, error) {
		var before []perf.Count
		if calls != nil {
			var err error
			if before, err = calls.Read(); err != nil {
				return nil, err
			}
		}
		copies, err := perf.SampleCopies(last)
		if err != nil {
			missing("The share of copies", err)
		}
		return func() error {
			var faults []error
			if copies != nil {
				share, err := copies.Stop()
				if err != nil {
					missing("The share of copies", err)
				} else {
					r.Copies = &share
				}
			}
			if calls != nil {
				after, err := calls.Read()
				faults = append(faults, err)
				if len(after) == 2 {
					r.Sender, r.Receiver = since(before[0], after[0]), since(before[1], after[1])
				}
			}
			return errors.Join(faults...)
		}, nil
	}
	r.TCPResult, err = load.TCP(ctx, load.TCPPlan{From: b.from, To: b.to, Streams: streams, WarmUp: warmUp,
		Duration: last, PIDs: pids, Around: around})
	return r, err
}

func since(before, after perf.Count) *perf.Count {
	return &perf.Count{Reads: after.Reads - before.Reads, Sends: after.Sends - before.Sends}
}
