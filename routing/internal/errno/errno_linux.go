// Package errno says what errors of the kernel mean.
package errno

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// Exhausted reports whether an error is nothing but a want of descriptors or memory; of errors that are
// joined, each. It says nothing about what is in place, since the kernel could not be asked.
func Exhausted(err error) bool {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(all.Unwrap(), func(err error) bool { return !Exhausted(err) })
	}
	if next := errors.Unwrap(err); next != nil {
		return Exhausted(next)
	}
	return slices.ContainsFunc([]error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS},
		func(e error) bool { return errors.Is(err, e) })
}
