package show

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
)

// States that weft status --wait waits for.
const (
	waitReady = "ready"
	waitPeers = "peers"
)

// waitMost is the longest time between two looks at what is waited for.
const waitMost = time.Second

// waitFor asks the daemon until it is what is waited for, or until limit is over. In the second case the
// error says what was missing, and the status is the last one, if there was any.
func waitFor(ctx context.Context, c *cli.App, what string, limit time.Duration) (s control.Status, known bool,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	missing := "weftd was not asked yet"
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, waitMost) {
		now, errNow := c.Client().Status(ctx)
		switch {
		case errNow != nil && ctx.Err() != nil: // it says nothing about the daemon
		case errNow != nil && !errors.Is(errNow, control.ErrNoDaemon) && !errors.Is(errNow, control.ErrStuck):
			return s, known, errNow // waiting does not help: not root, for one
		case errNow != nil:
			missing = errNow.Error()
		default:
			s, known = now, true
			if missing = missingFor(ctx, c, what, now); missing == "" {
				return s, true, nil
			}
		}
		select {
		case <-ctx.Done():
			return s, known, fmt.Errorf("not %s within %s: %s", what, limit, missing)
		case <-time.After(pause):
		}
	}
}

// missing says what s lacks to be what is waited for; "" if nothing.
func missingFor(ctx context.Context, c *cli.App, what string, s control.Status) string {
	if !s.Ready {
		return strings.Join(s.NotReady, "; ")
	}
	if what != waitPeers {
		return ""
	}
	p, err := c.Client().Peers(ctx)
	if err != nil {
		return err.Error()
	}
	asked := 0
	for _, e := range p.Peers {
		for _, q := range e.Probes {
			if asked++; q.Answers == "yes" {
				return ""
			}
		}
	}
	switch {
	case len(p.Peers) == 0:
		return "there is no peer (see weft lease list)"
	case asked == 0: // nobody asks them here, so that more than their records is not known
		return ""
	}
	return "none of " + cli.Count(len(p.Peers), "peer") + " has answered (see weft peers)"
}
