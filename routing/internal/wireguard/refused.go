package wireguard

import (
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Refused is how often datagrams of an address were refused, and why.
type Refused struct {
	// Initiations are handshakes that the other end began and this device did not accept: it knows no such key, or the clock over there
	// was set back. Responses are answers to our own handshakes that were not accepted: the preshared key is another one there.
	Initiations, Responses uint64
	// Last is when the last was.
	Last time.Time
}

// refusals counts what a device refused, by the address that it came from. It is safe for concurrent use.
type refusals struct {
	mu     sync.Mutex
	by     map[netip.Addr]Refused
	marked uint64 // handshakes for another key than this device's, of which the library does not say where they came from
}

// mostRefused is how many addresses are kept apart: anybody can send from any.
const mostRefused = 1024

// What the library says when it refuses a handshake. It calls its logger for handshakes and timers, and not for packets.
const (
	saysInitiation = "Received invalid initiation message from"
	saysResponse   = "Received invalid response message from"
	saysMark       = "Received packet with invalid mac1"
)

// note counts what the library says, if it is about a refusal.
func (r *refusals) note(format string, args []any) {
	mark, initiation := strings.HasPrefix(format, saysMark), strings.HasPrefix(format, saysInitiation)
	if !mark && !initiation && !strings.HasPrefix(format, saysResponse) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if mark {
		r.marked++
		return
	}
	if len(args) == 0 {
		return
	}
	text, _ := args[0].(string)
	from, err := netip.ParseAddrPort(text)
	if err != nil {
		return
	}
	x, known := r.by[from.Addr()]
	if !known && len(r.by) >= mostRefused {
		return
	}
	if r.by == nil {
		r.by = map[netip.Addr]Refused{}
	}
	if x.Last = time.Now(); initiation {
		x.Initiations++
	} else {
		x.Responses++
	}
	r.by[from.Addr()] = x
}

// of is what was refused of an address.
func (r *refusals) of(a netip.Addr) Refused {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[a]
}

// wrongKeys is how many handshakes were for another key than this device's.
func (r *refusals) wrongKeys() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.marked
}
