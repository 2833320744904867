package daemon

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/internal/podport"
)

// A status names the pods that moved most, and not hundreds.
func TestStatusNamesTheBusiestPods(t *testing.T) {
	var all []podport.Pod
	for i := range 2 * control.MostBusiest {
		all = append(all, podport.Pod{Request: podport.Request{
			Key: podport.Key{ID: fmt.Sprint(i), Interface: "eth0"}}, SentBytes: uint64(i % 3),
			ReceivedBytes: uint64(i * 10), Drops: []podport.Drop{{Packets: 2}, {Packets: 3}}})
	}
	got := busiest(all)
	if len(got) != control.MostBusiest {
		t.Fatalf("%d pods, want %d", len(got), control.MostBusiest)
	}
	for i, p := range got {
		if want := fmt.Sprint(2*control.MostBusiest - 1 - i); p.ID != want || p.RefusedPackets != 5 ||
			p.ReceivedBytes == 0 {
			t.Errorf("place %d has %+v, want pod %s", i, p, want)
		}
	}
	if busiest(nil) != nil {
		t.Error("no pods are some")
	}
}

// While another program takes this one's place an attach is refused, and none of the pod's descriptors stays.
func TestRefusedAttachClosesDescriptors(t *testing.T) {
	d := &Daemon{log: discard()}
	d.upgrades.changing.Lock()
	defer d.upgrades.changing.Unlock()
	var fds []int
	for range 3 {
		fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	if _, err := d.Attach(podport.Request{}, fds); !errors.Is(err, control.ErrReplaced) {
		t.Errorf("got %v", err)
	}
	for _, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
			t.Errorf("descriptor %d is open: %v", fd, err)
		}
	}
}
