package lease

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"weft/lease/atomicfile"
)

// StateFile, in the state directory, holds what tells that from another one.
const StateFile = "state-id"

// LoadState returns the name of the state directory dir: 128 bits that were drawn at its first use. It is no
// secret. It tells a restarted process from one on another machine, unless the directory was copied.
// LoadState makes a missing directory.
func LoadState(dir string) (string, error) {
	path := filepath.Join(dir, StateFile)
	stored, err := os.ReadFile(path)
	switch id := string(bytes.TrimSpace(stored)); {
	case err == nil && ValidState(id):
		return id, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("read the state directory's name: %w", err)
	}
	id := NewIdentity() // also for one that is garbage: it proves nothing
	if err := atomicfile.Write(path, []byte(id+"\n")); err != nil {
		return "", fmt.Errorf("store the state directory's name: %w", err)
	}
	return id, nil
}

// maxState is the longest name of a state directory, in bytes.
const maxState = 64

func ValidState(id string) bool { return len(id) <= maxState && ValidNode(id) }
