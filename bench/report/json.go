package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// WriteJSON writes the document, indented but for its lists of numbers.
func (d *Document) WriteJSON(w io.Writer) error {
	text, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	b.WriteByte('\n')
	if _, err := w.Write(joinNumbers(b.Bytes())); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// joinNumbers puts each list of numbers on one line, since a histogram has hundreds of them.
func joinNumbers(text []byte) []byte {
	var out []byte
	for line := range bytes.Lines(text) {
		trimmed := bytes.TrimSpace(line)
		number := len(trimmed) > 0 && (trimmed[0] == '-' || trimmed[0] >= '0' && trimmed[0] <= '9')
		ends := bytes.HasPrefix(trimmed, []byte("]"))
		if last := len(out) - 1; number || ends && last > 0 && out[last] != '}' && out[last] != '\n' {
			out = bytes.TrimRight(out, "\n")
			if number && out[len(out)-1] == ',' {
				out = append(out, ' ')
			}
			out = append(out, trimmed...)
			if ends {
				out = append(out, '\n')
			}
			continue
		}
		out = append(out, line...)
	}
	return out
}

// ReadJSON reads what WriteJSON wrote. It ignores fields that it does not know, since a later weft may have
// more of them. Another schema or version is an error.
func ReadJSON(r io.Reader) (*Document, error) {
	var d Document
	if err := json.NewDecoder(r).Decode(&d); err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	if d.Schema != Schema || d.Version != Version {
		return nil, fmt.Errorf("this is %q version %d; this weft reads %q version %d", d.Schema, d.Version, Schema, Version)
	}
	return &d, nil
}

// ToFile lets write write a file. What write cannot write leaves the file as it was. With an empty name ToFile does nothing.
func ToFile(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}
