package daemon

import (
	"fmt"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/internal/podport"
)

// MayAttach implements control.Node.
func (d *Daemon) MayAttach(podport.Request) error {
	return fmt.Errorf("%w: this weftd does not attach pods yet", control.ErrRefused)
}

// Attach implements control.Node.
func (d *Daemon) Attach(r podport.Request, tun int) (podport.Pod, error) {
	_ = unix.Close(tun)
	return podport.Pod{}, d.MayAttach(r)
}

// Detach implements control.Node.
func (d *Daemon) Detach(k podport.Key) (podport.Pod, error) {
	return podport.Pod{}, fmt.Errorf("%s: %w", k, control.ErrNotFound)
}

// Pods implements control.Node.
func (d *Daemon) Pods() podport.Pods { return podport.Pods{Pods: []podport.Pod{}} }
