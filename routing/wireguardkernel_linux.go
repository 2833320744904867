package routing

import (
	"errors"

	"weft/routing/internal/kernel"
	"weft/routing/internal/wireguard"
)

// openKernelWireGuard makes the kernel's device, or takes over the one that is there, with the sessions that it has.
func openKernelWireGuard(k *kernel.Kernel, name string, fresh bool) (wireGuardEnd, error) {
	if fresh {
		if err := k.AddWireGuard(name); err != nil {
			return nil, err
		}
	}
	d, err := wireguard.OpenKernel(name, k.Do)
	if err != nil {
		if fresh {
			err = errors.Join(err, k.DelLink(name))
		}
		return nil, err
	}
	return d, nil
}
