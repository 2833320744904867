package podport

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/socket"
	"weft/test/netns"
)

func addrs(text ...string) (l []netip.Addr) {
	for _, s := range text {
		l = append(l, netip.MustParseAddr(s))
	}
	return l
}

// sound is a request that nothing is wrong with.
func sound() Request {
	return Request{
		Key: Key{ID: "a1", Interface: "eth0"}, Name: "web", Netns: "/run/netns/web", By: "weft attach",
		Addresses: addrs("10.42.1.2", "fd00:42::2"), MTU: 1450,
		Reservation: &Reservation{Dir: "/var/lib/cni/networks", Network: "weft"},
	}
}

// TestCheck: whatever comes over the socket is refused unless it is sound, and what is wrong with it is
// named.
func TestCheck(t *testing.T) {
	for _, ok := range []func(*Request){
		func(*Request) {},
		func(r *Request) { r.Name, r.Netns, r.By, r.Reservation = "", "", "", nil },
		func(r *Request) { r.Name = "größer 世界" },
		func(r *Request) { r.Key = Key{strings.Repeat("a", maxID), "eth0-_.x"} },
		func(r *Request) { r.Addresses, r.MTU = addrs("10.42.1.2"), LeastMTU },
		func(r *Request) { r.MTU = MostMTU },
	} {
		r := sound()
		ok(&r)
		if err := r.Check(); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	many := make([]netip.Addr, MaxAddresses+1)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{10, 42, 1, byte(i + 1)})
	}
	for _, c := range []struct {
		want string
		make func(*Request)
	}{
		{`"" is no id`, func(r *Request) { r.ID = "" }},
		{`"../x"`, func(r *Request) { r.ID = "../x" }},
		{`".x" is no id`, func(r *Request) { r.ID = ".x" }},
		{"no id", func(r *Request) { r.ID = strings.Repeat("a", maxID+1) }},
		{`"a\nb" is no id`, func(r *Request) { r.ID = "a\nb" }},
		{"interface", func(r *Request) { r.Interface = "" }},
		{"interface", func(r *Request) { r.Interface = "a-name-too-long0" }},
		{"interface", func(r *Request) { r.Interface = ".." }},
		{"interface", func(r *Request) { r.Interface = "a/b" }},
		{"interface", func(r *Request) { r.Interface = "eth%d" }},
		{"interface", func(r *Request) { r.Interface = "eth\x00" }},
		{"name \"a\\n", func(r *Request) { r.Name = "a\nb" }},
		{"netns ", func(r *Request) { r.Netns = strings.Repeat("x", maxText+1) }},
		{"by ", func(r *Request) { r.By = "\x1b[31m" }},
		{"0 addresses", func(r *Request) { r.Addresses = nil }},
		{"17 addresses", func(r *Request) { r.Addresses = many }},
		{"address", func(r *Request) { r.Addresses = []netip.Addr{{}} }},
		{"address", func(r *Request) { r.Addresses = addrs("::ffff:10.42.1.2") }},
		{"address", func(r *Request) { r.Addresses = addrs("fe80::1%eth0") }},
		{"fe80::1", func(r *Request) { r.Addresses = addrs("fe80::1") }},
		{"127.0.0.1", func(r *Request) { r.Addresses = addrs("127.0.0.1") }},
		{"224.0.0.1", func(r *Request) { r.Addresses = addrs("224.0.0.1") }},
		{"0.0.0.0", func(r *Request) { r.Addresses = addrs("0.0.0.0") }},
		{"10.42.1.2", func(r *Request) { r.Addresses = addrs("10.42.1.2", "10.42.1.3", "10.42.1.2") }},
		{"MTU 575", func(r *Request) { r.MTU = LeastMTU - 1 }},
		{"MTU 65536", func(r *Request) { r.MTU = MostMTU + 1 }},
		{"IPv6 needs 1280", func(r *Request) { r.MTU = 1279 }},
		{"absolute", func(r *Request) { r.Reservation.Dir = "var" }},
		{"absolute", func(r *Request) { r.Reservation.Dir = "/var/../etc" }},
		{"absolute", func(r *Request) { r.Reservation.Dir = "/var/" }},
		{"absolute", func(r *Request) { r.Reservation.Dir = "/a\x00b" }},
		{`"a/b"`, func(r *Request) { r.Reservation.Network = "a/b" }},
		{"network", func(r *Request) { r.Reservation.Network = ".." }},
	} {
		r := sound()
		c.make(&r)
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.ContainsAny(err.Error(), "\n\x1b\x00") || len(err.Error()) > 300 {
			t.Errorf("%+v: %v, want %q", r, err, c.want)
		}
	}
}

// tun makes a device in the thread's network namespace. The caller closes it.
func tun(name string, flags uint16) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	req.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// TestInspectTUN: only a descriptor of a pod's TUN is taken, with the name that its device has now.
func TestInspectTUN(t *testing.T) {
	n := netns.New(t, "inspect")
	const good = unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR
	for i, c := range []struct {
		flags uint16
		want  string // "" if it is taken
	}{
		{good, ""},
		{unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR, "TAP"},
		{unix.IFF_TUN | unix.IFF_NO_PI, "IFF_VNET_HDR"},
		{good | unix.IFF_MULTI_QUEUE, "several queues"},
	} {
		name := "pod" + string(rune('0'+i))
		var fd int
		if err := n.Do(func() (err error) { fd, err = tun(name, c.flags); return err }); err != nil {
			t.Fatal(err)
		}
		got, err := InspectTUN(fd)
		switch {
		case c.want == "" && (err != nil || got != name):
			t.Errorf("%#x: %q, %v", c.flags, got, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), name)):
			t.Errorf("%#x: %q, %v, want %q", c.flags, got, err, c.want)
		}
		inside := n.Do(func() error { _, err := InspectTUN(fd); return err })
		if c.want == "" && (inside == nil || !strings.Contains(inside.Error(), "namespace")) {
			t.Errorf("in the caller's own namespace: %v", inside)
		}
		_ = unix.Close(fd)
	}
	// Descriptors of something else, and of no device.
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	bare, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(bare)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	_ = unix.Close(pipe[1])
	for fd, want := range map[int]string{int(null.Fd()): "/dev/net/tun", pipe[0]: "/dev/net/tun",
		bare: "no device", -1: "descriptor"} {
		if name, err := InspectTUN(fd); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("descriptor %d: %q, %v, want %q", fd, name, err, want)
		}
	}
}

// TestTheClientAgainstGarbage: whatever answers, the client returns an error that says what it was, and of
// which kind.
func TestTheClientAgainstGarbage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	answers := make(chan string, 1)
	go func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			asked := make([]byte, 1<<17)
			n, _ := conn.Read(asked) // a request is one write
			answer := "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
			if !strings.HasPrefix(string(asked[:n]), "HEAD") {
				answer = <-answers
			}
			_, _ = conn.Write([]byte(answer))
			_ = conn.CloseWrite()
			_, _ = conn.Read(make([]byte, 1)) // else a descriptor that is still under way would fail with EPIPE
			_ = conn.Close()
		}
	}()
	const json = "Content-Type: application/json\r\n\r\n"
	k := Client{Socket: path}
	for _, c := range []struct {
		answer, want string
		is           error
	}{
		{"HTTP/1.0 200 OK\r\n" + json + `{"pods":{}}`, "object", nil},
		{"HTTP/1.0 200 OK\r\n" + json, "EOF", nil},
		{"HTTP/1.0 404 Not Found\r\nContent-Type: text/plain\r\n\r\n404 page not found", "older", socket.ErrUnknown},
		{"HTTP/1.0 404 Not Found\r\n" + json + `{"error":"no pod eth0 of a"}`, "eth0", socket.ErrNotFound},
		{"HTTP/1.0 403 Forbidden\r\n" + json + `{"error":"for root"}`, "for root", socket.ErrRefused},
		{"HTTP/1.0 500 Internal Server Error\r\n" + json + `{`, "500", nil},
		{"HTTP/1.0 500 Internal Server Error\r\n" + json + `{"error":""}`, "500", nil},
		{"\x00\x01\x02", "malformed", nil},
		{"SSH-2.0\r\n", "malformed", nil},
	} {
		answers <- c.answer
		_, err := k.Pods(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%q: %v, want %q of kind %v", c.answer, err, c.want, c.is)
		}
		answers <- c.answer
		if _, err := k.Detach(t.Context(), Key{"a", "eth0"}); err == nil && !strings.Contains(c.answer, "{}") {
			// JSON of a pod without anything
			t.Errorf("%q: a pod was detached", c.answer)
		}
		answers <- c.answer
		if _, err := k.Attach(t.Context(), sound(), []int{0}); err == nil {
			t.Errorf("%q: a pod was attached", c.answer)
		}
	}
	for _, after := range []string{"", "{", "[]", `{"status":200}`, `{"status":409,"error":"taken"}`,
		`{"status":500}`} {
		answers <- "HTTP/1.1 101 Switching Protocols\r\n\r\n" + after
		if p, err := k.Attach(t.Context(), sound(), []int{0}); err == nil {
			t.Errorf("upgraded, and then %q: %+v", after, p)
		}
	}
	// What is not sound is not even asked.
	if _, err := k.Attach(t.Context(), Request{}, []int{0}); err == nil ||
		!strings.Contains(err.Error(), "no id") {
		t.Errorf("attach nothing: %v", err)
	}
	if _, err := k.Detach(t.Context(), Key{}); err == nil || !strings.Contains(err.Error(), "no id") {
		t.Errorf("detach nothing: %v", err)
	}
	k.Socket += "none"
	if _, err := k.Pods(t.Context()); !errors.Is(err, socket.ErrNoDaemon) {
		t.Errorf("nobody there: %v", err)
	}
}
