package lease

import (
	"io"

	"weft/lease/internal/replace"
)

// WriteFile replaces path in one step: a reader sees the old content or the new, also after a crash. The file
// has mode 0600, and a directory that WriteFile makes 0700. The error names path, and is the same for the
// same cause.
func WriteFile(path string, content []byte) error {
	return replaceFile(path, func(w io.Writer) error { _, err := w.Write(content); return err })
}

// replaceFile is WriteFile for content that write makes.
func replaceFile(path string, write func(io.Writer) error) error {
	return replace.File(path, 0o600, 0o700, write)
}
