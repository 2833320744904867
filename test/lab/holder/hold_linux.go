package holder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"weft/test/lab"
)

// Options are those of Hold.
type Options struct {
	// Name is the lab's; it must be free.
	Name string
	// Spec describes the lab. Its Name and StateDir are set by Hold.
	Spec lab.Spec
	// KeepLogs keeps the state directory, which is otherwise kept only after a node's fault.
	KeepLogs bool
	// Work is called when the lab is up. When it returns, the lab ends. Its context ends
	// when ctx does, which the caller ends at SIGTERM: with that `weft lab down` asks for the end.
	Work func(context.Context, *lab.Lab) error
}

// Hold builds a lab, lets it be found and takes it down again when Work has
// returned. kept is the state directory if it was kept. It is no error if `weft lab down`
// asked for the end.
func Hold(ctx context.Context, o Options) (kept string, err error) {
	c, err := claimName(o.Name)
	if err != nil {
		return "", err
	}
	defer func() {
		var fault *lab.NodeError
		keep := o.KeepLogs || errors.As(err, &fault) || errors.Is(err, ErrLeft)
		if keep {
			kept = c.dir
		}
		c.release(keep)
	}()

	o.Spec.Name, o.Spec.StateDir, o.Spec.KeepState = o.Name, c.dir, true
	l, err := lab.Up(ctx, o.Spec)
	if err == nil {
		defer func() {
			l.Close()
			err = errors.Join(err, c.leave(l.Left()))
		}()
		var s *state
		if s, err = stateOf(l); err == nil {
			err = s.write(c.dir)
		}
		if err == nil {
			err = o.Work(ctx, l)
		}
		_ = os.Remove(filepath.Join(c.dir, stateFile)) // nobody is to enter it from now on
	}
	_, notAsked := os.Stat(filepath.Join(c.dir, downFile))
	switch cause := context.Cause(ctx); {
	case cause != nil && notAsked == nil:
		return "", nil
	case cause != nil && err != nil:
		return "", fmt.Errorf("interrupted: %w", cause) // what failed, failed because of that
	default:
		return "", err
	}
}
