package daemon

import (
	"context"
	"fmt"

	"weft/cmd/internal/control"
	"weft/routing/probe"
)

// Ask implements control.ProbeService.
func (d *Daemon) Ask(ctx context.Context, r control.AskRequest) (control.Asked, error) {
	g, waiting := d.current()
	switch {
	case g == nil:
		return control.Asked{}, fmt.Errorf("%w: there is no overlay yet: %s", control.ErrRefused, waiting)
	case g.prober == nil:
		return control.Asked{}, fmt.Errorf("%w: this node asks nobody (--probe=false, or Backend.Probe)",
			control.ErrRefused)
	}
	got, err := g.prober.Ask(ctx, r.Address, probe.Series{Count: r.Count, Interval: r.Interval,
		Timeout: r.Timeout})
	if err != nil {
		return control.Asked{}, fmt.Errorf("%v: %w: no peer of this node answers weft's questions there", r.Address,
			control.ErrNotFound)
	}
	return control.Asked{RTTs: got.RTTs, Refused: got.Refused, Unsent: got.Unsent}, nil
}
