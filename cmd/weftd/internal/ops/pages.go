package ops

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// maxPages is how many renderings may be in memory. A client that reads slowly keeps one; while there
	// are as many as that, a new client gets the newest of them.
	maxPages = 3
	// restFactor bounds the time of the processor: after a rendering the next one waits for restFactor
	// times as long as that took. All clients that ask meanwhile share the next one.
	restFactor = 4
)

// pages makes renderings, each for all clients that wait for one. It is safe for concurrent use.
type pages struct {
	render func() []byte

	mu    sync.Mutex
	next  *page // the one that is being made, or will be; nil if nobody waits
	last  *page // the newest one that is still being sent to somebody; nil if there is none
	alive int
	after time.Time // no rendering begins before
}

// page is one rendering. It stays in memory as long as somebody uses it.
type page struct {
	done  chan struct{} // closed when text is there
	empty chan struct{} // closed when nobody wants it any more before it was begun
	text  []byte        // nil if it was not made

	users int // pages' lock protects it
	begun bool

	once   sync.Once
	packed []byte
}

// errNoPage says that a rendering failed.
var errNoPage = errors.New("the metrics could not be rendered")

// get waits for a rendering; while maxPages are in use it returns the newest of them. The caller has to call
// put with it, unless there is an error, which is ctx's or errNoPage.
func (p *pages) get(ctx context.Context) (*page, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g := p.join()
	err := errNoPage
	select {
	case <-g.done:
		if g.text != nil {
			return g, nil
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.put(g)
	return nil, err
}

// join returns the page to wait for, and counts the caller as its user. If there is none, one is made.
func (p *pages) join() *page {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.next
	if g == nil && p.alive >= maxPages {
		g = p.last
	}
	if g != nil {
		g.users++
		return g
	}
	g = &page{done: make(chan struct{}), empty: make(chan struct{}), users: 1}
	p.next, p.alive = g, p.alive+1
	go p.make(g, time.Until(p.after)) // whoever has g waits for it, and it ends when nobody does
	return g
}

// make waits for rest and renders g, unless nobody wants it any more.
func (p *pages) make(g *page, rest time.Duration) {
	defer close(g.done)
	if rest > 0 {
		t := time.NewTimer(rest)
		defer t.Stop()
		select {
		case <-t.C:
		case <-g.empty:
		}
	}
	p.mu.Lock()
	g.begun = g.users > 0
	p.mu.Unlock()
	if !g.begun {
		return
	}
	start := time.Now()
	defer func() {
		_ = recover() // as net/http does for a request: a metric that fails is no reason to stop forwarding
		took := time.Since(start)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.next, p.after = nil, start.Add((1+restFactor)*took)
		switch {
		case g.users == 0:
			p.alive--
		case g.text != nil:
			p.last = g
		}
	}()
	g.text = p.render()
}

// put ends one use of g.
func (p *pages) put(g *page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.users--; g.users > 0 || p.next == g && g.begun { // the latter is make's to count out
		return
	}
	p.alive--
	switch g {
	case p.next:
		close(g.empty)
		p.next = nil
	case p.last:
		p.last = nil
	}
}

// gzip returns the page's text compressed, which is done once for all clients.
func (g *page) gzip() []byte {
	g.once.Do(func() {
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is a valid one
		_, _ = w.Write(g.text)                          // into memory
		_ = w.Close()
		g.packed = b.Bytes()
	})
	return g.packed
}
