package ops

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A client that has left before its turn costs no rendering.
func TestWhoHasLeftCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made atomic.Int32
		p := &pages{render: func() []byte {
			made.Add(1)
			time.Sleep(time.Second)
			return []byte("x")
		}}
		g, err := p.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.put(g)
		ctx, cancel := context.WithTimeout(t.Context(), restFactor*time.Second-time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if _, err := p.get(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v within the rest after a rendering", err)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Hour)
		if made.Load() != 1 || p.alive != 0 || p.next != nil {
			t.Errorf("%d renderings, %d pages alive", made.Load(), p.alive)
		}
	})
}

// However many clients ask, renderings take one part in 1+restFactor of the time of a processor.
func TestRenderingsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made atomic.Int32
		p := &pages{render: func() []byte {
			made.Add(1)
			time.Sleep(time.Second)
			return []byte("x")
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for {
					g, err := p.get(ctx)
					if err != nil {
						return
					}
					p.put(g)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Minute) // the last one may still be made
		if made, most := made.Load(), int32(50/(1+restFactor)+1); made > most || made < most-2 {
			t.Errorf("%d renderings of a second in 50 s, want about %d", made, most)
		}
	})
}

func TestPagesInUseAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pages{render: func() []byte { return []byte("x") }}
		var held []*page
		distinct := map[*page]bool{}
		for range 10 {
			g, err := p.get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, g)
			distinct[g] = true
		}
		if len(distinct) != maxPages {
			t.Errorf("%d pages for 10 that read slowly, want %d", len(distinct), maxPages)
		}
		for _, g := range held {
			p.put(g)
		}
		if p.alive != 0 || p.last != nil {
			t.Errorf("%d pages alive and used by nobody", p.alive)
		}
	})
}

func TestARenderingThatFails(t *testing.T) {
	fail := true
	p := &pages{render: func() []byte {
		if fail {
			panic("a metric is wrong")
		}
		return []byte("x")
	}}
	if _, err := p.get(t.Context()); !errors.Is(err, errNoPage) {
		t.Errorf("got %v", err)
	}
	fail = false
	if _, err := p.get(t.Context()); err != nil || p.alive != 1 {
		t.Errorf("the next one: %v, %d alive", err, p.alive)
	}
}
