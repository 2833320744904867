package custody

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// Item is what is kept under one name: open descriptors, and the bytes that say what they are. An Item that is returned
// belongs to the caller, with its descriptors, which are closed on exec.
type Item struct {
	Name string
	// Meta is never looked into.
	Meta []byte
	FDs  []int
}

// What one Item may have at most.
const (
	MaxName = 255      // bytes of UTF-8, and at least one
	MaxMeta = 16 << 10 // bytes
	MaxFDs  = 252
)

// What a holder keeps at most. The number of its descriptors may be bound tighter by RLIMIT_NOFILE.
const (
	maxItems       = 4096
	maxDescriptors = 16 << 10
	maxMetaTotal   = 16 << 20 // bytes
)

var errNoFDs = errors.New("there is no descriptor to keep")

// check says why i cannot be kept by anybody, nil if it can.
func (i Item) check() error {
	switch {
	case i.Name == "" || len(i.Name) > MaxName || !utf8.ValidString(i.Name):
		return fmt.Errorf("keep descriptors as %.40q: a name is 1 to %d bytes of UTF-8, and this one has %d", i.Name, MaxName, len(i.Name))
	case len(i.Meta) > MaxMeta:
		return fmt.Errorf("keep descriptors of %q: %d bytes about them are more than %d", i.Name, len(i.Meta), MaxMeta)
	case len(i.FDs) == 0:
		return fmt.Errorf("keep descriptors of %q: %w", i.Name, errNoFDs)
	case len(i.FDs) > MaxFDs:
		return fmt.Errorf("keep descriptors of %q: %d at once are more than %d", i.Name, len(i.FDs), MaxFDs)
	}
	return nil
}
