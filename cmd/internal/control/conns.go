package control

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// maxSilent is how many connections may be without a request. Clients of ours ask at once.
const maxSilent = 32

// BoundSilent returns a server's ConnState that closes the oldest connection without a request where there
// are too many. So a client that connects and says nothing makes room for others, and takes no more
// descriptors.
func BoundSilent() func(net.Conn, http.ConnState) {
	var mu sync.Mutex
	var silent []net.Conn // oldest first
	return func(c net.Conn, s http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if i := slices.Index(silent, c); i >= 0 {
			silent = slices.Delete(silent, i, i+1)
		}
		if s != http.StateNew && s != http.StateIdle {
			return
		}
		silent = append(silent, c)
		if len(silent) > maxSilent {
			_ = silent[0].Close() // it was read from only
			silent = slices.Delete(silent, 0, 1)
		}
	}
}
