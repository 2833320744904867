package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/podport"
	"weft/cmd/internal/rights"
)

// Upgrader gives way to another process of weftd.
type Upgrader interface {
	// MayHandOver returns nil if the weftd that asks may take this one's place, else what to tell it.
	MayHandOver(r HandOverRequest) error
	// HandOver speaks with it on conn, which it takes over. It returns when the other one has taken this one's place, or will not.
	HandOver(r HandOverRequest, caller Caller, conn *net.UnixConn)
	// Upgrade starts a program as this weftd's successor, and waits until it has taken its place.
	Upgrade(ctx context.Context, r UpgradeRequest) (Upgraded, error)
}

// Caller is the process that asks.
type Caller struct {
	// PID is its number, 0 if it is not visible here, as in another PID namespace.
	PID int
	// FD is a descriptor of the process (pidfd_open(2)), by which its end can be seen wherever it is; -1 if there is none. It is not the callee's.
	FD int
}

// HandOverRequest is what a weftd says of itself that would take another's place.
type HandOverRequest struct {
	// Protocol is handover.Version.
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`
	PID      int    `json:"pid"`
	// State names its state directory.
	State string `json:"state"`
	// Netns is the number of its network namespace, which is the inode of /proc/self/ns/net.
	Netns uint64 `json:"netns"`
}

// UpgradeRequest asks for a successor.
type UpgradeRequest struct {
	// Binary is the program, by an absolute path; "" is the one that is at weftd's own path now.
	Binary string `json:"binary,omitempty"`
}

// Upgraded says how one weftd took another's place.
type Upgraded struct {
	Binary      string `json:"binary"`
	FromVersion string `json:"from_version"`
	ToVersion   string `json:"to_version"`
	FromPID     int    `json:"from_pid"`
	PID         int    `json:"pid"`
	// Pause is how long nobody read, in microseconds: packets waited in queues meanwhile. Took is the time of it all, in milliseconds.
	Pause int64 `json:"pause_us"`
	Took  int64 `json:"took_ms"`
	// Ports are those of the data plane that were handed over, and Pods the pods that are attached directly.
	Ports int `json:"ports"`
	Pods  int `json:"pods"`
}

// ErrReplaced says that another process is taking this one's place just now: to try again soon helps.
var ErrReplaced = errors.New("another weftd is taking this one's place just now: try again in a moment")

// ErrUnknown says that the daemon does not know the request, since it is older.
var ErrUnknown = errors.New("the weftd that runs is older than this command, and does not know what it asks for: restart it with a program that is as new (systemctl restart weftd)")

// upgradeTo is the protocol that a connection is upgraded to for a hand-over.
const upgradeTo = "weft-handover"

const upgradePath = "/v1/upgrade"

// UpgradeTime bounds an upgrade.
const UpgradeTime = 90 * time.Second

func serveHandOver(mux *http.ServeMux, n Upgrader) {
	mux.HandleFunc("POST /v1/handover", func(w http.ResponseWriter, r *http.Request) {
		var req HandOverRequest
		if !handOverRequest(w, r, &req) {
			return
		}
		if err := n.MayHandOver(req); err != nil {
			reply(w, nil, err)
			return
		}
		h, ok := w.(http.Hijacker)
		if !ok || r.Header.Get("Upgrade") != upgradeTo {
			replyError(w, http.StatusBadRequest, errors.New("the request does not ask for an upgrade to "+upgradeTo))
			return
		}
		conn, _, err := h.Hijack()
		if err != nil {
			return // the client is gone
		}
		defer func() { _ = conn.Close() }() // what was to be said has been said
		u, ok := conn.(*net.UnixConn)
		if !ok {
			return
		}
		cred, err := rights.Peer(u)
		if err != nil {
			return
		}
		caller := Caller{PID: int(cred.Pid), FD: rights.PeerProcess(u, int(cred.Pid))}
		if caller.FD >= 0 {
			defer func() { _ = unix.Close(caller.FD) }() // nothing was written
		}
		if ours := packets(u); ours != nil {
			n.HandOver(req, caller, ours)
		}
	})
	mux.HandleFunc("POST "+upgradePath, func(w http.ResponseWriter, r *http.Request) {
		var req UpgradeRequest
		if !podRequest(w, r, &req) {
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(UpgradeTime + requestTimeout)) // with less the answer is lost, and nothing else
		ctx, cancel := context.WithTimeout(r.Context(), UpgradeTime)
		defer cancel()
		done, err := n.Upgrade(ctx, req)
		reply(w, done, err)
	})
}

// handOverRequest is podRequest for one of another version, which may say more than this one knows of: by its Protocol it is told what
// is so.
func handOverRequest(w http.ResponseWriter, r *http.Request, into *HandOverRequest) bool {
	if err := mayChange(r.Context()); err != nil {
		reply(w, nil, err)
		return false
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, podport.MaxRequest)).Decode(into); err != nil {
		replyError(w, http.StatusBadRequest, fmt.Errorf("request: %w", err))
		return false
	}
	return true
}

// packets answers the request, and sends beside that one end of a connection of packets, whose other end it returns; nil if the client is gone.
func packets(u *net.UnixConn) *net.UnixConn {
	if err := u.SetDeadline(time.Now().Add(descriptorTime)); err != nil {
		return nil
	}
	if _, err := u.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + upgradeTo + "\r\n\r\n")); err != nil {
		return nil
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	err = rights.Send(u, []byte{0}, ends[1:])
	_ = unix.Close(ends[1]) // it is the other's
	ours, bad := unixConn(ends[0])
	if err != nil || bad != nil {
		if bad == nil {
			_ = ours.Close() // nobody has the other end
		}
		return nil
	}
	return ours
}

// unixConn takes fd over.
func unixConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "hand-over")
	defer func() { _ = f.Close() }() // the connection has a duplicate
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("no Unix socket"), c.Close())
	}
	return u, nil
}

// AskHandOver asks the weftd behind the socket to give way. Without one the error wraps ErrNoDaemon; one that says no, or knows no
// hand-over, is an error that wraps ErrRefused.
func AskHandOver(ctx context.Context, socket string, r HandOverRequest) (*net.UnixConn, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("hand-over: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, wholeTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, ErrNoDaemon
	}
	if err != nil {
		return nil, fmt.Errorf("ask the weftd on %s to hand over: %w", socket, err)
	}
	u := c.(*net.UnixConn)           // of network unix
	defer func() { _ = u.Close() }() // it was for the request only
	stop := context.AfterFunc(ctx, func() { _ = u.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := rights.SameUser(u); err != nil {
		return nil, fmt.Errorf("%w: what answers on %s is not believed to be our weftd: %w", ErrRefused, socket, err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /v1/handover HTTP/1.1\r\nHost: weftd\r\nContent-Type: application/json\r\nConnection: Upgrade\r\nUpgrade: %s\r\nContent-Length: %d\r\n\r\n%s", upgradeTo, len(body), body)
	if _, err := u.Write(b.Bytes()); err != nil {
		return nil, fmt.Errorf("ask the weftd on %s to hand over: %w", socket, err)
	}
	// The answer is read byte by byte, since a descriptor comes with the byte behind it.
	resp, err := http.ReadResponse(bufio.NewReaderSize(oneByte{u}, 16), nil)
	if err != nil {
		return nil, fmt.Errorf("ask the weftd on %s to hand over: %w", socket, err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusSwitchingProtocols:
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return nil, fmt.Errorf("%w: it is older than hand-over", ErrRefused)
	default:
		return nil, fmt.Errorf("%w: %w", ErrRefused, refusal(resp))
	}
	m, err := rights.Receive(u, make([]byte, 1), maxDescriptors)
	if err != nil || len(m.FDs) != 1 {
		rights.Close(m.FDs)
		return nil, fmt.Errorf("ask the weftd on %s to hand over: it sent %d descriptors: %w", socket, len(m.FDs), errors.Join(err, ErrRefused))
	}
	return unixConn(m.FDs[0])
}

// oneByte reads no more than one byte at a time.
type oneByte struct{ c *net.UnixConn }

func (o oneByte) Read(b []byte) (int, error) { return o.c.Read(b[:min(1, len(b))]) }

// Upgrade asks the daemon to start r.Binary in its place, and waits for that.
func (c *Client) Upgrade(ctx context.Context, r UpgradeRequest) (u Upgraded, err error) {
	return u, c.do(ctx, http.MethodPost, upgradePath, r, &u)
}
