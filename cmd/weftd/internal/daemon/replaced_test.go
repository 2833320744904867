package daemon

import (
	"context"
	"errors"
	"testing"

	"weft/cmd/internal/control"
)

// The key stays as it is while another process takes this one's place, which has read it, and afterwards.
func TestNoNewKeyBesideAnotherProcess(t *testing.T) {
	d := &Daemon{}
	var end context.CancelCauseFunc
	d.running, end = context.WithCancelCause(t.Context())
	d.changing.Lock()
	if _, err := d.RotateKey(t.Context()); !errors.Is(err, control.ErrReplaced) {
		t.Errorf("during the hand-over: %v", err)
	}
	if _, err := d.UpgradeEncryption(t.Context()); !errors.Is(err, control.ErrReplaced) {
		t.Errorf("the processes, during the hand-over: %v", err)
	}
	d.over = &HandedOver{PID: 7}
	end(d.over)
	d.changing.Unlock()
	if _, err := d.RotateKey(t.Context()); !errors.Is(err, control.ErrReplaced) {
		t.Errorf("after it: %v", err)
	}
}
