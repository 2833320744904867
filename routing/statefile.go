package routing

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"weft/lease/atomicfile"
	"weft/routing/internal/kernel"
)

// stateFile is a file in the state directory that a driver keeps for the next process; "" keeps nothing.
type stateFile string

// stateFile is the file of that name.
func (c BackendConfig) stateFile(name string) stateFile {
	if c.StateDir == "" {
		return ""
	}
	return stateFile(filepath.Join(c.StateDir, name))
}

// load reads the file into v, which stays what it is if there is none.
func (f stateFile) load(v any) error {
	b, err := os.ReadFile(string(f))
	if f == "" || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	return kernel.Wrap(string(f), err)
}

func (f stateFile) save(v any) error {
	if f == "" {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return kernel.Wrap("note what was done", atomicfile.Write(string(f), b))
}
