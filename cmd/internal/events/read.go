package events

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Read returns the events in dir that are later than after, in their order. A line that is none, as a crash may leave
// one, is passed over. The error wraps fs.ErrNotExist if there is no history.
func Read(dir string, after time.Time) ([]Event, error) {
	former, errFormer := readFile(filepath.Join(dir, Former), after)
	now, err := readFile(filepath.Join(dir, File), after)
	if errors.Is(err, fs.ErrNotExist) && errFormer == nil { // weftd is just beginning another one
		err = nil
	}
	if errFormer != nil && !errors.Is(errFormer, fs.ErrNotExist) {
		err = errors.Join(err, errFormer)
	}
	all := append(former, now...)
	// While they were read, one may have taken the other's place, so that events are in both.
	slices.SortStableFunc(all, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return slices.CompactFunc(all, func(a, b Event) bool { return a.Time.Equal(b.Time) && a.Kind == b.Kind && a.Message == b.Message }), err
}

func readFile(path string, after time.Time) (out []Event, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	lines := bufio.NewScanner(io.LimitReader(f, 2*maxFile))
	lines.Buffer(nil, 64<<10)
	for lines.Scan() {
		var e Event
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Time.After(after) && e.Kind != "" {
			out = append(out, e)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return out, nil // nothing that weftd wrote
	}
	return out, lines.Err()
}
