package etcdchild

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

// relay is an io.Writer for the log of etcd, a JSON object a line. Each becomes a record of log: what etcd
// calls an error is a warning, and all else is for debugging, since what etcd warns of (a slow disk, a client
// that went away) is no fault to its user. Any other line, such as those of a panic, becomes a warning.
type relay struct {
	log  *slog.Logger
	rest []byte // of a line that has not ended
	said string // the first line that was no record, or else the last that etcd called fatal
}

// maxLine is the length in bytes at which a longer line is cut.
const maxLine = 64 << 10

func (r *relay) Write(b []byte) (int, error) {
	r.rest = append(r.rest, b...)
	for {
		line, rest, ok := bytes.Cut(r.rest, []byte("\n"))
		if !ok && len(line) < maxLine {
			return len(b), nil
		}
		r.line(line)
		r.rest = append(r.rest[:0], rest...)
	}
}

// end is called after the last Write, and returns what the process printed besides its log.
func (r *relay) end() string {
	if len(r.rest) > 0 {
		r.line(r.rest)
	}
	return r.said
}

func (r *relay) line(b []byte) {
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return
	}
	var record map[string]any
	message := ""
	if json.Unmarshal(b, &record) == nil {
		message, _ = record["msg"].(string)
	}
	if message == "" {
		if r.log.Warn("embedded etcd printed", "line", string(b)); r.said == "" {
			r.said = string(b)
		}
		return
	}
	level := slog.LevelDebug
	switch record["level"] {
	case "fatal", "panic":
		if r.said == "" {
			r.said = fmt.Sprintf("%s: %v", message, record["error"])
		}
		fallthrough
	case "error", "dpanic":
		level = slog.LevelWarn
	}
	for _, known := range []string{"level", "ts", "msg", "caller", "stacktrace"} {
		delete(record, known)
	}
	attrs := []slog.Attr{}
	for _, key := range slices.Sorted(maps.Keys(record)) {
		attrs = append(attrs, slog.Any(key, record[key]))
	}
	r.log.LogAttrs(context.Background(), level, message, attrs...)
}
