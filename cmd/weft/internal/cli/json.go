package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// schema begins a document of --json. A field that goes, or means something else, makes another version; one
// that comes does not. The types themselves lack it: between weft and weftd the path has a version.
const schema = `{"schema_version":1,`

// PrintDocument prints what a daemon answered as an indented document, whose first field is the version.
func PrintDocument(w io.Writer, v any) error {
	b, err := document(v)
	if err != nil {
		return err
	}
	return PrintJSON(w, json.RawMessage(b))
}

// PrintLine prints such a document on a line of its own.
func PrintLine(w io.Writer, v any) error {
	b, err := document(v)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

func document(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("print JSON: %w", err)
	}
	return append([]byte(schema), b.Bytes()[1:]...), nil // v is an object, and has fields
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
