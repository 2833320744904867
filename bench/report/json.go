package report

import (
	"encoding/json"
	"fmt"
	"io"
)

// WriteJSON writes the document, indented.
func (d *Document) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(d); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}
