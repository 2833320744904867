package routing

import "errors"

// inUserSpace says whether this program is to do what the kernel could, by a word of the key Userspace, and if it is for want of the
// kernel's, why. probe asks the kernel, and its error wraps missing if that has none; there, if it is not nil, says that a device is there,
// which proves that it has.
func inUserSpace(c BackendConfig, word string, probe func() error, missing error, there func() bool) (yes bool, why string, err error) {
	switch {
	case word == userAlways:
		return true, "", nil
	case word == userNever:
		return false, "", nil
	case c.Outside != nil:
		return true, "", nil // the kernel's device would send where the TUN is
	case there != nil && there():
		return false, "", nil
	}
	switch err := probe(); {
	case err == nil:
		return false, "", nil
	case errors.Is(err, missing):
		return true, err.Error(), nil
	default:
		return false, "", err
	}
}
