// Package attach keeps, for every attachment of a container to the network, the
// configuration with which it was made, so that it can be undone in the same way when
// the node's configuration has changed, or is gone.
//
// A file is named <container>:<interface>; neither contains a colon. flannel's plugin names
// its files <container> alone, so that of two interfaces of one container it remembers only
// the last. Its files are read here. The file of the first attachment of a container also has
// a name of that form, as a second link. So either plugin can undo what the other has made.
package attach

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containernetworking/cni/pkg/utils"

	"weft/lease/atomicfile"
)

const (
	separator = ":"
	// maxText bounds a file, in bytes.
	maxText = 1 << 20
)

// ID is one interface of one container.
type ID struct{ Container, Interface string }

func (id ID) String() string {
	if id.Interface == "" {
		return "container " + id.Container
	}
	return "interface " + id.Interface + " of container " + id.Container
}

// Check refuses what is no container id or no interface name: either could otherwise
// lead out of the directory. The error is a *types.Error that names the variable.
func (id ID) Check() error {
	if err := utils.ValidateContainerID(id.Container); err != nil {
		return err
	}
	if err := utils.ValidateInterfaceName(id.Interface); err != nil {
		return err
	}
	return nil
}

// Record is the record of an attachment.
type Record struct {
	ID ID
	// Text is the configuration that its delegate was called with.
	Text []byte
	// Flannel says that flannel's plugin wrote it. In a Record that List returns,
	// ID.Interface is then empty.
	Flannel bool
	// Path is the file.
	Path string
}

// Dir is the directory that holds the files. Attachments of several networks may share it.
type Dir string

func (d Dir) own(id ID) string {
	return filepath.Join(string(d), id.Container+separator+id.Interface)
}
func (d Dir) flannels(id string) string { return filepath.Join(string(d), id) }

// Save writes the record of id and replaces an earlier one, in one step, so that a crash leaves
// the whole of the one or of the other. Only the owner may read the file, and the directory if it
// has to be made.
func (d Dir) Save(id ID, text []byte) error {
	if err := id.Check(); err != nil {
		return err
	}
	if err := d.unlinkFlannels(id); err != nil {
		return err
	}
	err := atomicfile.Write(d.own(id), text)
	d.linkFlannels(id)
	return err
}

// Load reads the record of id. The error wraps fs.ErrNotExist if there is none.
func (d Dir) Load(id ID) (Record, error) {
	if err := id.Check(); err != nil {
		return Record{}, err
	}
	r := Record{ID: id, Path: d.own(id)}
	text, err := read(r.Path)
	if errors.Is(err, fs.ErrNotExist) && d.isFlannels(id.Container) {
		r.Path, r.Flannel = d.flannels(id.Container), true
		text, err = read(r.Path)
	}
	if err != nil {
		return Record{}, err
	}
	r.Text = text
	return r, nil
}

// Remove deletes r. It is no error if it is gone already.
func (d Dir) Remove(r Record) error {
	if !r.Flannel {
		if err := d.unlinkFlannels(r.ID); err != nil {
			return err
		}
	}
	if err := os.Remove(r.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// List returns all records. Files that are neither ours nor flannel's are left alone. A file that
// cannot be read is an error, beside which the other records are returned. What a crash left of a
// record that was being written is in the list too, as one of an interface that nobody has.
func (d Dir) List() ([]Record, error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	faults := []error{err}
	var out []Record
	for _, e := range entries {
		path := filepath.Join(string(d), e.Name())
		container, iface, ours := strings.Cut(e.Name(), separator)
		r := Record{ID: ID{container, iface}, Path: path, Flannel: !ours}
		switch {
		case !e.Type().IsRegular():
			continue
		case ours && r.ID.Check() != nil, !ours && (utils.ValidateContainerID(container) != nil ||
			!d.isFlannels(container)):
			continue
		}
		if r.Text, err = read(path); errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		} else if err != nil {
			faults = append(faults, err)
			continue
		}
		out = append(out, r)
	}
	return out, errors.Join(faults...)
}

// isFlannels reports whether flannel's plugin wrote container's file: one of ours has a
// second name.
func (d Dir) isFlannels(container string) bool {
	info, err := os.Lstat(d.flannels(container))
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink == 1
}

// unlinkFlannels removes the second name of id's file, before the first: a name that is
// alone would look like flannel's.
func (d Dir) unlinkFlannels(id ID) error {
	own, err := os.Lstat(d.own(id))
	if err != nil {
		return ignoreMissing(err)
	}
	second, err := os.Lstat(d.flannels(id.Container))
	if err != nil || !os.SameFile(own, second) {
		return ignoreMissing(err)
	}
	return ignoreMissing(os.Remove(d.flannels(id.Container)))
}

// linkFlannels gives id's file the second name. If that exists, it is another interface's. If the file
// system has no links, flannel's plugin will not find the attachment. Neither is a reason to fail.
func (d Dir) linkFlannels(id ID) { _ = os.Link(d.own(id), d.flannels(id.Container)) }

func read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err == nil && len(b) > maxText {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxText)
	}
	return b, err
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
