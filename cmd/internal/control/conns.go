package control

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// maxWaiting is how many connections may be without a request. A client of ours asks at once. So whoever connects and says nothing makes room for
// others, and takes no more of weftd's descriptors.
const maxWaiting = 32

// waiting are the connections without a request, the oldest first.
type waiting struct {
	mu    sync.Mutex
	conns []net.Conn
}

// state takes in what became of a connection. It closes the oldest where there are too many.
func (w *waiting) state(c net.Conn, s http.ConnState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.conns, c); i >= 0 {
		w.conns = slices.Delete(w.conns, i, i+1)
	}
	if s != http.StateNew && s != http.StateIdle {
		return
	}
	w.conns = append(w.conns, c)
	if len(w.conns) > maxWaiting {
		_ = w.conns[0].Close() // it was read from only
		w.conns = slices.Delete(w.conns, 0, 1)
	}
}
