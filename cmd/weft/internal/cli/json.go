package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// schema begins a document of --json. A field that goes, or means something else, makes another version; one
// that comes does not. The types themselves lack it: between weft and weftd the path has a version.
const schema = `{"schema_version":1`

// PrintDocument prints what a daemon answered as an indented document, whose first field is the version.
func PrintDocument(w io.Writer, v any) error {
	b, err := document(v)
	if err != nil {
		return err
	}
	return PrintJSON(w, json.RawMessage(b))
}

// PrintLine prints such a document on a line of its own. It has the fields of all parts.
func PrintLine(w io.Writer, parts ...any) error {
	b, err := document(parts...)
	if err == nil {
		_, err = w.Write(append(b, '\n'))
	}
	return err
}

// document puts the version before the fields of objects, none of which is empty.
func document(parts ...any) ([]byte, error) {
	all := []byte(schema)
	for _, v := range parts {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return nil, fmt.Errorf("print JSON: %w", err)
		}
		all = append(append(all, ','), bytes.TrimSuffix(b.Bytes()[1:], []byte("}\n"))...)
	}
	return append(all, '}'), nil
}

// PrintJSON prints v, which has its version if it has one, as an indented document.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}
