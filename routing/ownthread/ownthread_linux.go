// Package ownthread runs work in other network namespaces, on threads that nothing else runs on.
package ownthread

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// In runs f on a thread in the network namespace of a descriptor.
func In(ns int, f func() error) error {
	return run(func() error {
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
		return f()
	})
}

// InNew runs f on a thread in a new network namespace, which vanishes unless f keeps a descriptor of it.
func InNew(f func() error) error {
	return run(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		return f()
	})
}

// run runs f on a thread that ends afterwards, since it may not return from where f takes it. The process'
// first thread would not end with its goroutine, and what /proc shows of the process is that thread's: while
// it is the one that is free, it is held.
func run(f func() error) error {
	done := make(chan error, 1)
	go func() { // waited for below
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			done <- run(f)
			return
		}
		done <- f()
	}()
	return <-done
}
