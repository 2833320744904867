package etcdchild

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
)

// relay is an io.Writer for a process's log: each line that slog wrote there as JSON becomes a record of log
// with the same level, message and attributes. Any other line, such as those of a panic, becomes a warning.
type relay struct {
	log  *slog.Logger
	rest []byte // of a line that has not ended
	said string // the first line that was no record
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
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return
	}
	level, message, attrs, ok := record(b)
	if !ok {
		if level, message, attrs = slog.LevelWarn, "embedded etcd printed", []slog.Attr{slog.String("line", string(b))}; r.said == "" {
			r.said = string(b)
		}
	}
	r.log.LogAttrs(context.Background(), level, message, attrs...)
}

// record reads a line of slog.JSONHandler. The attributes keep their order.
func record(line []byte) (level slog.Level, message string, attrs []slog.Attr, ok bool) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return 0, "", nil, false
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return 0, "", nil, false
		}
		var value any
		if err := d.Decode(&value); err != nil {
			return 0, "", nil, false
		}
		text, _ := value.(string)
		switch key {
		case slog.TimeKey:
		case slog.LevelKey:
			if level.UnmarshalText([]byte(text)) != nil {
				return 0, "", nil, false
			}
		case slog.MessageKey:
			message = text
		default:
			attrs = append(attrs, slog.Any(key.(string), value))
		}
	}
	return level, message, attrs, message != ""
}
