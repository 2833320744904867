package notify_test

import (
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/routing/internal/notify"
)

// Close ends a Run that waits, without an error, and may be called twice.
func TestCloseEndsRun(t *testing.T) {
	s, err := notify.Open(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(func([]syscall.NetlinkMessage) {}) }()
	s.Close()
	s.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("Run goes on")
	}
}
