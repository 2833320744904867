package wireguard

import (
	"sync"
	"time"
)

// sessionTime is how long a session lasts without a handshake: REJECT_AFTER_TIME of WireGuard's paper.
const sessionTime = 180 * time.Second

// Silence is why packets for a peer do not get there.
type Silence int

const (
	// Heard says that nothing is wrong: there is a session, or nothing is sent.
	Heard Silence = iota
	// NeverAnswered says that no handshake was completed since the device was made, and some were begun.
	NeverAnswered
	// AnsweredBefore says that the last session ended, and packets leave in vain since.
	AnsweredBefore
)

// Silence says at that time whether the peer is heard.
func (p PeerState) Silence(now time.Time) Silence {
	switch {
	case p.Handshake.IsZero() && p.Tx > 0:
		return NeverAnswered
	case p.Handshake.IsZero(), p.hasSession(now), now.Sub(p.InVain) > sessionTime:
		return Heard
	}
	return AnsweredBefore
}

// hasSession says that packets for a peer can leave without a handshake.
func (p PeerState) hasSession(now time.Time) bool {
	return !p.Handshake.IsZero() && now.Sub(p.Handshake) < sessionTime
}

// calls has, for each peer without a session, when bytes were last seen to leave for it. A session ends when
// nothing passes, and begins with the next packet: its end is a fault only if bytes, those of handshakes,
// leave all the same. It is safe for concurrent use.
type calls struct {
	mu   sync.Mutex
	last map[PublicKey]call
}

// call is what was last known of a peer without a session.
type call struct {
	handshake time.Time
	tx        uint64
	at        time.Time // when tx was seen to have grown; zero for never since the session ended
}

// note sets InVain of all of a device's peers. It has to be called more often than sessions end.
func (c *calls) note(ps []PeerState, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := make(map[PublicKey]call, len(ps))
	for i := range ps {
		p := &ps[i]
		if p.hasSession(now) {
			continue
		}
		x, known := c.last[p.Key]
		switch {
		case !known || !x.handshake.Equal(p.Handshake): // what was sent until now may have been in the session
			x = call{handshake: p.Handshake, tx: p.Tx}
		case x.tx != p.Tx:
			x.tx, x.at = p.Tx, now
		}
		next[p.Key], p.InVain = x, x.at
	}
	c.last = next
}
