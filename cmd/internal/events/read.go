package events

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Read returns the events in dir whose time is later than after, in the order in which they happened. A line
// that is none, as a crash may leave one, is passed over. The error wraps fs.ErrNotExist if there is no
// history.
func Read(dir string, after time.Time) ([]Event, error) {
	now, err := readFile(filepath.Join(dir, File))
	former, errFormer := readFile(filepath.Join(dir, Former))
	if errors.Is(err, fs.ErrNotExist) && errFormer == nil { // weftd is just beginning another one
		err = nil
	}
	if errFormer != nil && !errors.Is(errFormer, fs.ErrNotExist) {
		err = errors.Join(err, errFormer)
	}
	// While they were read, one may have taken the other's place, so that events are in both.
	if len(now) > 0 && slices.ContainsFunc(former, now[0].same) {
		now = nil
	}
	all := append(former, now...)
	return slices.DeleteFunc(all, func(e Event) bool { return !e.Time.After(after) }), err
}

// After returns those of all that came after last, which was read before; all of them if last is not there
// any more. Times do not tell: the clock may have been set back.
func After(all []Event, last Event) []Event {
	for i, e := range slices.Backward(all) {
		if e.same(last) {
			return all[i+1:]
		}
	}
	return all
}

func (e Event) same(o Event) bool {
	return e.Time.Equal(o.Time) && e.Kind == o.Kind && e.Message == o.Message
}

// maxLine is longer than any line that weftd writes, in bytes.
const maxLine = 64 << 10

func readFile(path string) (out []Event, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not hold us up
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	// Of a file that somebody made larger, the end counts.
	if _, err := f.Seek(max(0, info.Size()-2*maxFile), io.SeekStart); err != nil {
		return nil, err
	}
	lines := bufio.NewReaderSize(io.LimitReader(f, 4*maxFile), maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) { // nothing that weftd wrote
			line = nil
			_, err = lines.ReadSlice('\n')
		}
		var e Event
		if json.Unmarshal(line, &e) == nil && e.Kind != "" {
			out = append(out, e)
		}
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}
