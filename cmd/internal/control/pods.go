package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"weft/cmd/internal/podport"
	"weft/cmd/internal/rights"
)

// PodService attaches pods directly.
type PodService interface {
	// MayAttach returns nil if a request could be fulfilled, before its descriptor is asked for.
	MayAttach(r podport.Request) error
	// Attach takes the TUN into use, whose descriptor is the first, with those of its podport.Settings, if they
	// came. It takes the descriptors over, also beside an error. Its error is as that of Release.
	Attach(r podport.Request, fds []int) (podport.Pod, error)
	Detach(k podport.Key) (podport.Pod, error)
	Pods() podport.Pods
}

// descriptorTime bounds how long a client may take to send its descriptor.
const descriptorTime = 5 * time.Second

// maxDescriptors is how many descriptors of one message are taken in, to be closed if there are more than
// one. The kernel closes the others.
const maxDescriptors = 8

// callerKey is the key of a connection's caller in its context.
type callerKey struct{}

// withCaller adds to ctx the user behind c.
func withCaller(ctx context.Context, c net.Conn) context.Context {
	if u, ok := c.(*net.UnixConn); ok {
		if cred, err := rights.Peer(u); err == nil { // without a caller nothing is allowed
			return context.WithValue(ctx, callerKey{}, cred.Uid)
		}
	}
	return ctx
}

// mayChange refuses callers other than root and the user that this process runs as. The socket's mode says
// the same; a mode that somebody has changed shall not let others hand in descriptors, get weftd's own, name
// a program that it starts, take the node's key from it, give its subnet up, or read pods' packets.
func mayChange(ctx context.Context) error {
	uid, ok := ctx.Value(callerKey{}).(uint32)
	if !ok || uid != 0 && int(uid) != os.Geteuid() {
		return fmt.Errorf("%w: this is for root, or for the user that weftd runs as (uid %d)", ErrRefused,
			os.Geteuid())
	}
	return nil
}

func servePods(mux *http.ServeMux, n PodService) {
	mux.HandleFunc("GET /v1/pods", func(w http.ResponseWriter, _ *http.Request) { reply(w, n.Pods(), nil) })
	mux.HandleFunc("POST /v1/pods/detach", func(w http.ResponseWriter, r *http.Request) {
		var k podport.Key
		if !changeRequest(w, r, &k) {
			return
		}
		if err := k.Check(); err != nil {
			replyError(w, http.StatusBadRequest, err)
			return
		}
		p, err := n.Detach(k)
		reply(w, p, err)
	})
	mux.HandleFunc("POST /v1/pods/attach", func(w http.ResponseWriter, r *http.Request) { serveAttach(n, w, r) })
}

// changeRequest reads a request that changes something. If it is not to be fulfilled, it has been answered.
func changeRequest(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := mayChange(r.Context()); err != nil {
		reply(w, nil, err)
		return false
	}
	return into == nil || readRequest(w, r, into)
}

// readRequest reads a request. If it cannot be read, it has been answered.
func readRequest(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, podport.MaxRequest))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err != nil {
		replyError(w, http.StatusBadRequest, fmt.Errorf("request: %w", err))
	}
	return err == nil
}

func serveAttach(n PodService, w http.ResponseWriter, r *http.Request) {
	var req podport.Request
	if !changeRequest(w, r, &req) {
		return
	}
	if err := req.Check(); err != nil {
		replyError(w, http.StatusBadRequest, err)
		return
	}
	if r.Header.Get("Upgrade") != podport.Upgrade {
		replyError(w, http.StatusBadRequest, errors.New("the request does not ask for an upgrade to "+
			podport.Upgrade+", by which the descriptor is handed over"))
		return
	}
	if err := n.MayAttach(req); err != nil {
		reply(w, nil, err)
		return
	}
	h, ok := w.(http.Hijacker)
	if !ok {
		replyError(w, http.StatusBadRequest, errors.New("no descriptor can be handed over on this connection"))
		return
	}
	conn, rw, err := h.Hijack()
	if err != nil {
		return // the client is gone
	}
	defer func() { _ = conn.Close() }() // what was to be said has been said
	stop := context.AfterFunc(r.Context(), func() { _ = conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(descriptorTime)); err != nil {
		return
	}
	if rw.Reader.Buffered() > 0 {
		answer(conn, nil, errors.New("the descriptor was sent before it was asked for, and is lost"))
		return
	}
	if _, err := conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " +
		podport.Upgrade + "\r\n\r\n")); err != nil {
		return
	}
	fds, err := receiveTUN(conn, req)
	if err != nil {
		answer(conn, nil, err)
		return
	}
	p, err := n.Attach(req, fds)
	// the attach may have taken long; a client that is gone is told nothing
	_ = conn.SetDeadline(time.Now().Add(descriptorTime))
	answer(conn, &p, err)
}

// answer ends an attach.
func answer(conn net.Conn, p *podport.Pod, err error) {
	a := podport.Answer{Status: http.StatusOK, Pod: p}
	if err != nil {
		a = podport.Answer{Status: statusOf(err), Error: err.Error()}
	}
	_ = json.NewEncoder(conn).Encode(a) // the client went away
}

// receiveTUN takes descriptors off conn: that of a TUN whose device is called as r says, and with it those of
// its settings, or fewer of them.
func receiveTUN(conn net.Conn, r podport.Request) (fds []int, err error) {
	refuse := func(format string, a ...any) ([]int, error) {
		return nil, fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, a...))
	}
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return refuse("no descriptor can be handed over on this connection")
	}
	m, err := rights.Receive(u, make([]byte, 1), maxDescriptors)
	fds = m.FDs
	settings := podport.Settings()
	switch {
	case err != nil:
		rights.Close(fds)
		return refuse("no descriptor came: %v", err)
	case m.N != 1 || len(fds) < 1 || len(fds) > 1+len(settings) || m.Lost:
		rights.Close(fds)
		return refuse("%d descriptors came: want that of the pod's TUN, and at most those of the files of its %s",
			len(fds), strings.Join(settings, " and "))
	}
	is, err := podport.InspectTUN(fds[0])
	if err == nil && is != r.Interface {
		err = fmt.Errorf("its device is %s, and the request says %s", is, r.Interface)
	}
	for i, fd := range fds[1:] {
		if err != nil {
			break
		}
		var says int
		if says, err = podport.InspectSetting(fd, is, settings[i]); err == nil && i == 0 && says != r.MTU {
			err = fmt.Errorf("the MTU of %s is %d, and the request says %d", is, says, r.MTU)
		}
	}
	if err != nil {
		rights.Close(fds)
		return refuse("%v", err)
	}
	return fds, nil
}
