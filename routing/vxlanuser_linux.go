package routing

import (
	"errors"
	"slices"

	"weft/routing/internal/kernel"
)

// inUserSpace says whether vxlan is to be carried in user space, and if it is for want of the
// kernel's, why. A device that is there proves that the kernel has vxlan.
func inUserSpace(c BackendConfig, o VXLANOptions) (yes bool, why string, err error) {
	k := c.Kernel
	switch o.Userspace {
	case userAlways:
		return true, "", nil
	case userNever:
		return false, "", nil
	}
	if c.Outside != nil {
		return true, "", nil // the kernel's device would send where the TUN is
	}
	if slices.ContainsFunc([]bool{false, true}, func(six bool) bool { _, err := k.VTEP(kernel.VTEPName(six, o.VNI)); return err == nil }) {
		return false, "", nil
	}
	err = k.ProbeVXLAN()
	if errors.Is(err, kernel.ErrNoVXLAN) {
		return true, err.Error(), nil
	}
	if err != nil {
		return false, "", err
	}
	return false, "", nil
}
