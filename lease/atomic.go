package lease

import (
	"io"

	"weft/lease/internal/replace"
)

// WriteFile replaces path in one step: a reader, also one after a crash, sees
// the old content or the new. The file is the owner's alone (0600), and so is a
// directory that has to be made (0700). The error names path, and is the same each time that the cause is.
func WriteFile(path string, content []byte) error {
	return replaceFile(path, func(w io.Writer) error { _, err := w.Write(content); return err })
}

// replaceFile is WriteFile for content that write makes.
func replaceFile(path string, write func(io.Writer) error) error {
	return replace.File(path, 0o600, 0o700, write)
}
