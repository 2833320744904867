package kernel_test

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"weft/routing/internal/kernel"
	"weft/test/netns"
)

// rtattr encodes one netlink attribute, padded (RTA_ALIGN of rtnetlink.h).
func rtattr(kind uint16, v ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(v)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, v...)
	return append(b, make([]byte, -len(b)&3)...)
}

func TestInterest(t *testing.T) {
	i := kernel.Interest{Own: map[int]bool{7: true}, Names: map[string]bool{"flannel0": true},
		Networks: []netip.Prefix{pfx("10.5.0.0/16")}}
	link := func(index int32, name string) []byte {
		b := make([]byte, unix.SizeofIfInfomsg)
		binary.NativeEndian.PutUint32(b[4:], uint32(index))
		return append(b, rtattr(unix.IFLA_IFNAME, append([]byte(name), 0)...)...)
	}
	route := func(table byte, attrs ...[]byte) []byte {
		b := make([]byte, unix.SizeofRtMsg)
		b[0], b[4] = unix.AF_INET, table
		for _, a := range attrs {
			b = append(b, a...)
		}
		return b
	}
	ifaddr := make([]byte, unix.SizeofIfAddrmsg)
	binary.NativeEndian.PutUint32(ifaddr[4:], 7)
	for _, c := range []struct {
		name string
		kind uint16
		data []byte
		want bool
	}{
		{"our link by number", unix.RTM_NEWLINK, link(7, "x"), true},
		{"our link by name, with a new number", unix.RTM_DELLINK, link(9, "flannel0"), true},
		{"another link", unix.RTM_NEWLINK, link(9, "flannel"), false},
		{"an address of ours", unix.RTM_DELADDR, ifaddr, true},
		{"another's address", unix.RTM_DELADDR, make([]byte, unix.SizeofIfAddrmsg), false},
		{"a route by our link", unix.RTM_DELROUTE, route(unix.RT_TABLE_MAIN, rtattr(unix.RTA_DST, 172, 16, 0, 0),
			rtattr(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, 7)...)), true},
		{"a route within our network", unix.RTM_NEWROUTE,
			route(unix.RT_TABLE_MAIN, rtattr(unix.RTA_DST, 10, 5, 9, 0)), true},
		{"a route in another table", unix.RTM_NEWROUTE,
			route(unix.RT_TABLE_LOCAL, rtattr(unix.RTA_DST, 10, 5, 9, 0)), false},
		{"the default route", unix.RTM_NEWROUTE, route(unix.RT_TABLE_MAIN), false},
		{"truncated", unix.RTM_NEWROUTE, make([]byte, 3), false},
		{"something else", unix.RTM_NEWNEIGH, link(7, "flannel0"), false},
	} {
		if got := i.Concerns(syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: c.kind}, Data: c.data}); (got == kernel.ChangedObjects) != c.want || got&^kernel.ChangedObjects != 0 {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestMonitorResyncsAfterOverflow(t *testing.T) {
	k := inNamespace(t)
	m, err := k.Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Limit(1); err != nil { // the kernel's least
		t.Fatal(err)
	}
	netns.EtherLink(t, "eth0", 1500)
	for i := range 40 {
		netns.IP(t, "addr add 192.0.2.%d/32 dev eth0", i+1) // none concerns us
	}
	changed := make(chan bool, 1)
	done := make(chan error, 1)
	go func() { // waited for below
		done <- m.Follow(func(kernel.Change) {
			select {
			case changed <- true:
			default:
			}
		})
	}()
	<-changed
	m.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
