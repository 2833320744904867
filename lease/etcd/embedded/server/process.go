package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"syscall"
	"time"

	"weft/lease/etcd/embedded"
)

// Process is the whole of the program embedded.Program: it serves until lifeline ends, which is when the
// process that holds its other end does. Then it returns nil, without stopping etcd first: what was acknowledged
// is on disk, as after a crash. Reports go to out, and etcd's log, as JSON of slog, to log.
func Process(args []string, lifeline io.Reader, out, log io.Writer) error {
	report := json.NewEncoder(out)
	err := process(args, lifeline, log, report)
	if err != nil {
		return errors.Join(err, report.Encode(embedded.Report{Error: err.Error()}))
	}
	return nil
}

func process(args []string, lifeline io.Reader, log io.Writer, report *json.Encoder) error {
	c, debug, err := embedded.ParseArgs(args)
	if err != nil {
		return err
	}
	level := slog.LevelWarn
	if debug {
		level = slog.LevelDebug
	}
	c.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: level}))
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, lifeline) // however it ends
		cancel()
	}()
	s, err := patient(ctx, c)
	if err == nil {
		if err = report.Encode(embedded.Report{Endpoints: s.Endpoints()}); err == nil {
			err = s.Wait(ctx)
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case s != nil:
		return errors.Join(err, s.Close())
	}
	return err
}

// A former process, whose weftd was killed and is started again, may take some moments to be gone: until then
// its address is in use.
const (
	patience = 2 * time.Second
	again    = 20 * time.Millisecond
)

// patient is Start, which tries again for a while if the address is in use.
func patient(ctx context.Context, c embedded.Config) (*Server, error) {
	for end := time.Now().Add(patience); ; {
		s, err := Start(ctx, c)
		if err == nil || time.Now().After(end) || !errors.Is(err, ErrInUse) && !errors.Is(err, syscall.EADDRINUSE) {
			return s, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(again):
		}
	}
}
