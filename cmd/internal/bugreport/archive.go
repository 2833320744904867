package bugreport

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"weft/cmd/internal/running"
)

// SchemaVersion is that of the Manifest's JSON.
const SchemaVersion = 1

// Request says what to gather.
type Request struct {
	// Weft is the program that is asked for status and the like, and Socket that of the weftd to ask.
	Weft, Socket string
	// Process is weftd, as far as it is known. CacheDir is its state directory.
	Process  running.Process
	CacheDir string
	// Name is the archive's directory.
	Name string
	// Version is weft's.
	Version string
}

// Manifest lists what is in an archive. It is also in it, as manifest.json.
type Manifest struct {
	SchemaVersion int       `json:"schema_version"`
	Version       string    `json:"version"`
	Made          time.Time `json:"made"`
	Host          string    `json:"host"`
	Parts         []Part    `json:"parts"`
}

// Part is one file of an archive.
type Part struct {
	Name  string `json:"name"`
	What  string `json:"what"`
	Bytes int    `json:"bytes"`
	// Error says why it is not there, or not wholly.
	Error string `json:"error,omitempty"`
}

// atOnce is how many parts are gathered at a time.
const atOnce = 4

// Write gathers everything and writes the archive to w. The manifest names the parts that are missing; the
// error is w's.
func Write(ctx context.Context, r Request, w io.Writer) (Manifest, error) {
	environ := os.Environ()
	if would, err := running.UnitVariables(); err == nil { // be given to weftd
		environ = append(environ, would...)
	}
	return write(ctx, r, parts(r), newScrubber(secrets(r.Process, environ)), w)
}

func write(ctx context.Context, r Request, all []part, s *scrubber, w io.Writer) (Manifest, error) {
	host, _ := os.Hostname() // "" is said as such
	m := Manifest{SchemaVersion: SchemaVersion, Version: r.Version, Made: time.Now().UTC().Truncate(time.Second),
		Host: host, Parts: make([]Part, len(all))}
	texts := make([][]byte, len(all))
	var gathering errgroup.Group
	gathering.SetLimit(atOnce)
	for i, p := range all {
		gathering.Go(func() error {
			text, err := p.gather(ctx)
			texts[i] = s.scrub(text)
			m.Parts[i] = Part{Name: p.name, What: p.what, Bytes: len(texts[i])}
			if err != nil {
				m.Parts[i].Error = string(s.scrub([]byte(err.Error())))
			}
			return nil
		})
	}
	_ = gathering.Wait() // each part has its own
	zip := gzip.NewWriter(w)
	out := tar.NewWriter(zip)
	add := func(name string, text []byte) error {
		err := out.WriteHeader(&tar.Header{Name: r.Name + "/" + name, Mode: 0o600, Size: int64(len(text)),
			ModTime: m.Made, Typeflag: tar.TypeReg})
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	}
	list, err := json.MarshalIndent(m, "", "  ")
	err = errors.Join(err, add("manifest.json", append(list, '\n')))
	for i, p := range m.Parts {
		text := texts[i]
		if p.Error != "" {
			text = append(text, "\n[not complete: "+p.Error+"]\n"...)
		}
		if err == nil {
			err = add(p.Name, text)
		}
	}
	if err = errors.Join(err, out.Close(), zip.Close()); err != nil {
		return m, fmt.Errorf("write the archive: %w", err)
	}
	return m, nil
}

// gather reads the part within its limit, and does not wait for one that ignores it.
func (p part) gather(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() { // ends by itself; a file of a dead network file system may take its time
		text, err := p.read(ctx)
		text, long := cut(text)
		done <- result{text, errors.Join(err, long)}
	}()
	select {
	case r := <-done:
		if errors.Is(r.err, context.DeadlineExceeded) {
			r.err = fmt.Errorf("it took more than %s", p.limit)
		}
		return r.text, r.err
	case <-time.After(p.limit + 2*time.Second):
		return nil, fmt.Errorf("it took more than %s", p.limit)
	}
}
