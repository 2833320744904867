package etcd

import (
	"fmt"
	"io"
)

// Secret holds a password. No verb of fmt, no encoder and no logger shows it, not
// even from within another struct: the text is behind a pointer. The zero Secret is
// empty.
type Secret struct{ text *string }

// NewSecret returns a Secret that holds text.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{&text}
}

// Reveal returns the password.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

func (s Secret) masked() string {
	if s.text == nil {
		return ""
	}
	return "(secret)"
}

// Format implements fmt.Formatter.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.masked()) }

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.masked()), nil }
