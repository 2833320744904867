package events

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Of each kind burst events are kept at once, then one each refill; how many were left out, the next one
// says.
const (
	burst  = 20
	refill = 10 * time.Second
	// queued is how many events wait for the disk; more are left out, since nobody waits for it.
	queued = 256
	// again is the time before a file that could not be written is tried again.
	again = time.Minute
)

// Log writes the history. Add may be called by any goroutine; it never blocks. Run writes, and has to be
// called once.
type Log struct {
	dir   string
	queue chan Event

	mu    sync.Mutex // protects what follows
	kinds map[Kind]*bucket
	last  time.Time

	// The fields below belong to Run.
	file  *os.File
	size  int64
	retry time.Time
	fault bool
}

// bucket lets events of one kind pass.
type bucket struct {
	*rate.Limiter
	left int // events that were left out since the last that was not
}

// NewLog returns a Log whose files are in dir. It opens nothing.
func NewLog(dir string) *Log {
	return &Log{dir: dir, queue: make(chan Event, queued), kinds: map[Kind]*bucket{}}
}

// Add has e written, at the time that it is now, unless there were too many of its kind, or the disk is
// behind. It takes e over.
func (l *Log) Add(e Event) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.kinds[e.Kind]
	if b == nil {
		b = &bucket{Limiter: rate.NewLimiter(rate.Every(refill), burst)}
		l.kinds[e.Kind] = b
	}
	if !b.AllowN(now, 1) {
		b.left++
		return
	}
	if b.left > 0 {
		if e.Details == nil {
			e.Details = map[string]string{}
		}
		e.Details["left_out"] = fmt.Sprint(b.left)
	}
	if !now.After(l.last) { // two happened at once
		now = l.last.Add(1)
	}
	e.Time = now.UTC().Round(0)
	select {
	case l.queue <- e:
		l.last = now
		b.left = 0
	default:
		b.left++
	}
}

// Run writes what was added until ctx ends, and what waits then. It calls fault once for a file that cannot
// be written, and with nil when it can be again: without it the node only has no history.
func (l *Log) Run(ctx context.Context, fault func(error)) {
	defer func() {
		if l.file != nil {
			_ = l.file.Close() // each event was written by itself
		}
	}()
	for {
		select {
		case e := <-l.queue:
			l.write(e, fault)
		case <-ctx.Done():
			for {
				select {
				case e := <-l.queue:
					l.write(e, fault)
				default:
					return
				}
			}
		}
	}
}

// write appends e. An event that cannot be written is lost.
func (l *Log) write(e Event, fault func(error)) {
	if time.Now().Before(l.retry) {
		return
	}
	err := l.append(e)
	if err != nil {
		l.retry = time.Now().Add(again)
		if l.file != nil {
			_ = l.file.Close() // it is opened anew
			l.file = nil
		}
	}
	if (err != nil) != l.fault {
		l.fault = err != nil
		fault(err)
	}
}

func (l *Log) append(e Event) error {
	b, err := e.line()
	if err != nil {
		return err
	}
	if l.file == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	if l.size+int64(len(b)) > maxFile {
		if err := l.turn(); err != nil {
			return err
		}
	}
	n, err := l.file.Write(b)
	l.size += int64(n)
	return err
}

// open opens the file, and ends a line in it that a crash has cut off.
func (l *Log) open() error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(l.dir, File), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", f.Name())
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.size = f, info.Size()
	last := []byte{'\n'}
	if _, err := f.ReadAt(last, max(0, l.size-1)); err == nil && last[0] != '\n' {
		n, err := io.WriteString(f, "\n")
		l.size += int64(n)
		return err
	}
	return nil
}

// turn begins a new file; the full one becomes the former.
func (l *Log) turn() error {
	err := errors.Join(l.file.Close(), os.Rename(filepath.Join(l.dir, File), filepath.Join(l.dir, Former)))
	l.file = nil
	if err != nil {
		return err
	}
	return l.open()
}
