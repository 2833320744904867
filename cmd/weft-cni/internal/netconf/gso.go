package netconf

import (
	"encoding/json"
	"fmt"
)

// These are the bounds of a stated limit, in bytes. Below the lower one, cutting superpackets
// costs more than any path of the overlay gains. Above the upper one they are BIG TCP, which
// no path of the data plane carries in one piece.
const (
	MinGSOMaxSize = 16 << 10
	MaxGSOMaxSize = 64 << 10
)

// GSOLimit is the value of the key gsoMaxSize: absent, "auto", or a number of bytes. The
// zero value stands for absent, which leaves the pod's link as the kernel makes it.
type GSOLimit struct {
	// Auto asks for the limit that suits the path by which the node's weftd carries packets.
	Auto bool
	// Bytes is a stated limit, or 0.
	Bytes int
}

// UnmarshalJSON reads the key's value.
func (l *GSOLimit) UnmarshalJSON(b []byte) error {
	*l = GSOLimit{}
	switch text := string(b); text {
	case "null":
		return nil
	case `"auto"`:
		l.Auto = true
		return nil
	}
	if err := json.Unmarshal(b, &l.Bytes); err != nil || l.Bytes < MinGSOMaxSize || l.Bytes > MaxGSOMaxSize {
		return fmt.Errorf(`gsoMaxSize is %s: it takes "auto" or a number of bytes from %d to %d`, b, MinGSOMaxSize,
			MaxGSOMaxSize)
	}
	return nil
}
