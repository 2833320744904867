package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/podport"
	"weft/test/await"
)

// podFake is the part of fake that attaches pods.
type podFake struct {
	attached []podport.Request
	detached []podport.Key
	refuse   error // of MayAttach
	fail     error // of Attach
}

func (f *podFake) MayAttach(podport.Request) error { return f.refuse }
func (f *podFake) Attach(r podport.Request, fds []int) (podport.Pod, error) {
	f.attached = append(f.attached, r)
	for _, fd := range fds {
		f.fail = errors.Join(f.fail, unix.Close(fd))
	}
	return podport.Pod{Request: r, State: podport.Attached}, f.fail
}

func (f *podFake) Detach(k podport.Key) (podport.Pod, error) {
	f.detached = append(f.detached, k)
	return podport.Pod{Request: podport.Request{Key: k}}, f.fail
}

func (f *podFake) Pods() podport.Pods {
	return podport.Pods{Pods: []podport.Pod{{Request: podRequestOf("a"), State: podport.Attached,
		Traffic: podport.Traffic{SentPackets: 3}}}, Node: podport.Node{Attaches: true, MTU: 1472}}
}

func podRequestOf(id string) podport.Request {
	return podport.Request{
		Key: podport.Key{ID: id, Interface: "eth0"}, Name: "web", Netns: "/run/netns/web",
		By: "weft attach", MTU: 1472,
		Addresses:   []netip.Addr{netip.MustParseAddr("10.42.1.5"), netip.MustParseAddr("fd00:1::5")},
		Reservation: &podport.Reservation{Dir: "/var/lib/cni/networks", Network: "cbr0"},
	}
}

// openDescriptors counts those of this process.
func openDescriptors(t *testing.T) int {
	t.Helper()
	l, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(l)
}

func podClient(socket string) podport.Client {
	return podport.Client{Socket: socket, Timeout: 30 * time.Second}
}

func TestPodsAreListedAndDetached(t *testing.T) {
	f := &fake{}
	_, socket := serve(t, f)
	c := podClient(socket)
	got, err := c.Pods(t.Context())
	if err != nil || compare(got, f.Pods()) != "" {
		t.Errorf("%v %s", err, compare(got, f.Pods()))
	}
	k := podport.Key{ID: "a", Interface: "eth0"}
	if p, err := c.Detach(t.Context(), k); err != nil || p.Key != k || len(f.detached) != 1 {
		t.Errorf("got %+v, %v", p, err)
	}
	f.fail = fmt.Errorf("a: %w", ErrNotFound)
	if _, err := c.Detach(t.Context(), k); !errors.Is(err, ErrNotFound) {
		t.Errorf("a pod that is not known: %v", err)
	}
	if _, err := c.Detach(t.Context(), podport.Key{ID: "../a", Interface: "eth0"}); err == nil ||
		len(f.detached) != 2 {
		t.Errorf("a key that is a path: %v", err)
	}
}

// What is no descriptor of a pod's TUN is refused and closed, however it is handed in.
func TestOnlyAPodsTUNIsTakenIn(t *testing.T) {
	f := &fake{}
	_, socket := serve(t, f)
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	c := podClient(socket)
	if _, err := c.Attach(t.Context(), podRequestOf("warm"), []int{null}); err == nil {
		t.Fatal("/dev/null was taken")
	}
	before := openDescriptors(t)
	for name, x := range map[string]struct {
		rights []byte
		body   string
		early  bool
		want   string
	}{
		"no TUN":        {rights: unix.UnixRights(null), body: "x", want: "none of /dev/net/tun"},
		"no descriptor": {body: "x", want: "0 descriptors"},
		"two that are none": {rights: unix.UnixRights(null, null), body: "x",
			want: "none of /dev/net/tun"},
		"four descriptors": {rights: unix.UnixRights(null, null, null, null), body: "x",
			want: "4 descriptors"},
		"two messages of rights": {rights: append(unix.UnixRights(null, null), unix.UnixRights(null, null)...),
			body: "x", want: "4 descriptors"},
		"more than are taken in": {rights: unix.UnixRights(slice(null, 100)...), body: "x",
			want: "descriptors came"},
		"before it was asked for":    {rights: unix.UnixRights(null), body: "x", early: true, want: "is lost"},
		"the connection is shut":     {want: "no descriptor came"},
		"rights, and then more text": {rights: unix.UnixRights(null), body: "xyz", want: "none of /dev/net/tun"},
	} {
		if got := attachBy(t, socket, x.rights, x.body, x.early); !strings.Contains(got, x.want) {
			t.Errorf("%s: %q, want %q in it", name, got, x.want)
		}
	}
	if len(f.attached) != 0 {
		t.Errorf("attached %v", f.attached)
	}
	await.OK(t, "descriptors are given back", func() error { // with the server's connections
		if after := openDescriptors(t); after > before {
			return fmt.Errorf("%d descriptors, %d before", after, before)
		}
		return nil
	})
}

func slice(fd, n int) (l []int) {
	for range n {
		l = append(l, fd)
	}
	return l
}

// attachBy speaks the protocol by hand and returns what the server said last.
func attachBy(t *testing.T, socket string, rights []byte, body string, early bool) string {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	u := conn.(*net.UnixConn)
	defer u.Close()
	const request = `{"id":"a","interface":"eth0","addresses":["10.42.1.5"],"mtu":1472}`
	head := fmt.Sprintf("POST /v1/pods/attach HTTP/1.1\r\nHost: weftd\r\nConnection: Upgrade\r\nUpgrade: "+
		"%s\r\nContent-Length: %d\r\n\r\n%s", podport.Upgrade, len(request), request)
	if early {
		if _, _, err := u.WriteMsgUnix([]byte(head+body), rights, nil); err != nil {
			t.Fatal(err)
		}
		return readAll(t, u)
	}
	if _, err := u.Write([]byte(head)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4096)
	n, err := u.Read(answer)
	if err != nil || !strings.Contains(string(answer[:n]), " 101 ") {
		t.Fatalf("%v %q", err, answer[:n])
	}
	if body == "" {
		_ = u.CloseWrite()
	} else if _, _, err := u.WriteMsgUnix([]byte(body), rights, nil); err != nil {
		t.Fatal(err)
	}
	return readAll(t, u)
}

func readAll(t *testing.T, c net.Conn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var all []byte
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		all = append(all, buf[:n]...)
		if err != nil {
			return string(all)
		}
	}
}

// A request that is not sound costs nobody a descriptor.
func TestUnsoundAttachIsRefusedBeforeTheDescriptor(t *testing.T) {
	f := &fake{}
	_, socket := serve(t, f)
	send := func(path, headers, body string) string {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: weftd\r\n%sContent-Length: %d\r\n\r\n%s", path, headers,
			len(body), body)
		buf := make([]byte, 4096)
		n, _ := conn.Read(buf)
		return string(buf[:n])
	}
	upgrade := "Connection: Upgrade\r\nUpgrade: " + podport.Upgrade + "\r\n"
	good := `{"id":"a","interface":"eth0","addresses":["10.42.1.5"],"mtu":1472}`
	for _, x := range []struct{ headers, body, want string }{
		{"", good, "400"},
		// podport's TestCheck has all that is unsound.
		{upgrade, strings.Replace(good, `"a"`, `"../a"`, 1), "400"},
		{upgrade, strings.Replace(good, `{`, `{"surprise":1,`, 1), "400"},
		{upgrade, `{"name":"` + strings.Repeat("x", podport.MaxRequest) + `"}`, "400"},
	} {
		if got := send("/v1/pods/attach", x.headers, x.body); !strings.HasPrefix(got, "HTTP/1.1 "+x.want) {
			t.Errorf("%.80s: %.200q", x.body, got)
		}
	}
	f.refuse = fmt.Errorf("%w: the kernel moves the packets", ErrRefused)
	if got := send("/v1/pods/attach", upgrade, good); !strings.HasPrefix(got, "HTTP/1.1 409") {
		t.Errorf("%q", got)
	}
	if len(f.attached) != 0 {
		t.Errorf("attached %v", f.attached)
	}
}

// Whoever is neither root nor the daemon's user sees no pod's packets.
func TestStrangersSeeNoPackets(t *testing.T) {
	for uid, may := range map[uint32]bool{uint32(os.Geteuid()): true, 4711: false} {
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), callerKey{}, uid), http.MethodPost,
			"/v1/capture", strings.NewReader(`{"inner":true,"count":1}`))
		w := httptest.NewRecorder()
		serveCapture(&fake{}, w, r)
		if seen := w.Header().Get("Content-Type") == captureType; seen != may ||
			!may && w.Code != http.StatusConflict {
			t.Errorf("uid %d: status %d, %q", uid, w.Code, w.Body)
		}
	}
}
