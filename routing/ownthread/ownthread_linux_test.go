package ownthread

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/netns"
)

// TestTheFirstThreadStays: whatever is done in another namespace, /proc shows the process where it was.
func TestTheFirstThreadStays(t *testing.T) {
	netns.Need(t)
	first := fmt.Sprintf("/proc/%d/ns/net", os.Getpid())
	before, err := os.Readlink(first)
	if err != nil {
		t.Fatal(err)
	}
	fd := -1
	if err := InNew(func() (err error) {
		fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	// So many are there at one moment that no thread of the process is free, the first one neither.
	const many = 30
	for range 5 {
		var inside, done sync.WaitGroup
		inside.Add(many)
		for i := range many {
			done.Go(func() {
				entered := false
				run := InNew
				if i%2 == 0 {
					run = func(f func() error) error { return In(fd, f) }
				}
				err := run(func() error {
					entered = true
					inside.Done()
					inside.Wait()
					at, err := os.Readlink(first)
					if err == nil && at != before {
						err = fmt.Errorf("the process is in %s, and was in %s", at, before)
					}
					return err
				})
				if !entered {
					inside.Done() // or the others would wait for it
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
	}
	if after, err := os.Readlink(first); err != nil || after != before {
		t.Errorf("%s, %v; it was %s", after, err, before)
	}
}
