package tunnel

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/tunnel/port"
)

func TestObserve(t *testing.T) {
	const full = port.Headroom + 64
	for name, c := range map[string]struct {
		packets, reads, bytes int
		small, bulk           bool
	}{
		"one small":              {1, 1, full, false, false},
		"as many as no bulk has": {4, 4, 4 * full, false, false},
		"some small":             {5, 5, 5 * full, true, false},
		"many small":             {8, 8, 8 * full, true, true},
		"a full batch":           {port.MaxReads, port.MaxReads, port.MaxReads * full, false, true},
		"a full ring":            {port.BatchSize, 2, port.BatchSize * full, false, true},
		"a superpacket":          {1, 1, port.Headroom + 60000, false, true},
		"large packets":          {6, 6, 6 * (port.Headroom + 1400), false, true},
	} {
		e := &Engine{}
		w := &worker{engine: e}
		w.now = int64(time.Hour)
		w.observe(c.packets, c.reads, c.bytes)
		if w.small != c.small || e.load.bulk(w.now) != c.bulk {
			t.Errorf("%s: small %v, bulk %v", name, w.small, e.load.bulk(w.now))
		}
		if later := w.now + int64(bulkLasts); e.load.bulk(later) {
			t.Errorf("%s: still bulk %v later", name, bulkLasts)
		}
	}
}

// A worker that waits with its processor is neither deaf nor in the collector's way.
func TestPollerWaits(t *testing.T) {
	for _, keep := range []bool{false, true} {
		was := runtime.GOMAXPROCS(0)
		runtime.GOMAXPROCS(was + 1)
		p, err := newPoller()
		if err != nil {
			t.Fatal(err)
		}
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		if err := p.add(pipe[0], 7); err != nil {
			t.Fatal(err)
		}
		got, errRung := make(chan error), errors.New("rung")
		next := func() {
			events, rung, err := p.wait(keep)
			if rung {
				err = errRung
			} else if err == nil && (len(events) != 1 || events[0].id != 7) {
				err = errors.New("another event")
			}
			got <- err
		}
		for range 20 {
			go next()
			runtime.GC() // stops the world while the other waits
			if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
				t.Fatal(err)
			}
			if err := <-got; err != nil {
				t.Errorf("keep %v: %v", keep, err)
			}
			var b [1]byte
			if _, err := unix.Read(pipe[0], b[:]); err != nil {
				t.Fatal(err)
			}
		}
		go next()
		runtime.GC()
		p.wakeup()
		if err := <-got; !errors.Is(err, errRung) {
			t.Errorf("keep %v: after the bell: %v", keep, err)
		}
		go next() // the bell is heard once
		if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Errorf("keep %v: %v", keep, err)
		}
		runtime.GOMAXPROCS(was)
		if err := errors.Join(p.free(), unix.Close(pipe[0]), unix.Close(pipe[1])); err != nil {
			t.Error(err)
		}
	}
}

// slowPort has a packet at every look, and takes long for it.
type slowPort struct {
	fd, reads int
}

func (p *slowPort) Queues() []port.Queue { return []port.Queue{p} }

func (p *slowPort) PollFD() int { return p.fd }

func (p *slowPort) ReadBatch(r *port.Ring) error {
	p.reads++
	for end := time.Now().Add(2 * time.Millisecond); time.Now().Before(end); {
		runtime.Gosched()
	}
	if r.Slot() != nil {
		r.Commit(1)
	}
	return nil
}

func (p *slowPort) WriteBatch(*port.Ring, []*port.Packet) {}

func (p *slowPort) Close() error { return unix.Close(p.fd) }

// A worker whose packets are stuck looks after its other ports, and its end, all the same.
func TestLingerEnds(t *testing.T) {
	e, err := New(Config{Format: encap.FormatIP, Port: 8285, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	p := &slowPort{fd: fd}
	if _, err := e.Attach(p, RoleHost); err != nil {
		t.Fatal(err)
	}
	w := e.workers[0]
	for _, a := range e.attached {
		w.serve(a.queues[0].id, false, e.now())
	}
	w.linger()
	if p.reads < 2 || p.reads > 20 {
		t.Errorf("looked %d times at packets that take long", p.reads-1)
	}
	if err := e.close(); err != nil {
		t.Error(err)
	}
}
