package reexec

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/custody"
	"weft/cmd/internal/rights"
)

// Format is the version of the index. A program that reads another one is not executed.
const Format = 2

// State is what one program leaves to the next. Its descriptors belong to whoever has it.
type State struct {
	// ID tells this upgrade from others.
	ID string
	// From is the version of the program that left the state, Binary the path of the one that was executed.
	From, Binary string
	// Asked is when the upgrade was asked for, Paused since when nobody reads the ports; both by
	// custody.SinceBoot.
	Asked, Paused time.Duration
	// Idle says that the program served no network, so that the next one need not serve one to have arrived.
	Idle bool
	// Kept is what custody has, and Listeners what is served on, by name.
	Kept      custody.Left
	Listeners map[string]int
}

// Close closes the descriptors that are still there.
func (s *State) Close() {
	rights.Close(slices.Collect(maps.Values(s.Listeners)))
	s.Kept.Close()
	s.Listeners = nil
}

// index is a State as it stands in the memory file, with the numbers of descriptors.
type index struct {
	Format    int            `json:"format"`
	ID        string         `json:"id"`
	Fault     string         `json:"fault,omitempty"` // why the program that was executed gave up
	From      string         `json:"from"`
	Binary    string         `json:"binary"`
	Asked     time.Duration  `json:"asked"`
	Paused    time.Duration  `json:"paused"`
	Idle      bool           `json:"idle,omitempty"`
	Before    before         `json:"before"`
	Namespace int            `json:"namespace,omitempty"` // of the TUN, without root; it stays open
	Kept      custody.Left   `json:"kept"`
	Listeners map[string]int `json:"listeners"`
}

// before is the program that ran before; FD is 0 for none.
type before struct {
	FD   int      `json:"fd,omitempty"`
	Args []string `json:"args,omitempty"`
}

func indexOf(s State) index {
	return index{
		Format: Format, ID: s.ID, From: s.From, Binary: s.Binary, Asked: s.Asked, Paused: s.Paused, Idle: s.Idle,
		Kept: s.Kept, Listeners: s.Listeners,
	}
}

// kept are the descriptors that are the state's.
func (x *index) kept() []int {
	return slices.AppendSeq(slices.Collect(maps.Values(x.Kept.FDs)), maps.Values(x.Listeners))
}

// all are kept and those that the program itself needs.
func (x *index) all() []int {
	fds := x.kept()
	for _, fd := range []int{x.Before.FD, x.Namespace} {
		if fd > 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// state is x with duplicates of the descriptors.
func (x *index) state() (s State, err error) {
	s = State{
		ID: x.ID, From: x.From, Binary: x.Binary, Asked: x.Asked, Paused: x.Paused, Idle: x.Idle,
		Listeners: map[string]int{},
		Kept:      custody.Left{FDs: map[uint64]int{}, Shelved: x.Kept.Shelved, Holder: x.Kept.Holder},
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	for n, fd := range x.Kept.FDs {
		own, err := rights.Duplicate([]int{fd})
		if err != nil {
			return s, fmt.Errorf("take up descriptor %d that was kept: %w", n, err)
		}
		s.Kept.FDs[n] = own[0]
	}
	for name, fd := range x.Listeners {
		own, err := rights.Duplicate([]int{fd})
		if err != nil {
			return s, fmt.Errorf("take up the listener %q: %w", name, err)
		}
		s.Listeners[name] = own[0]
	}
	return s, nil
}

// write returns a sealed memory file with x.
func (x *index) write() (int, error) {
	b, err := json.Marshal(x)
	if err != nil {
		return -1, err
	}
	fd, err := unix.MemfdCreate("weft-upgrade", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("make a memory file: %w", err)
	}
	for n, off := 0, int64(0); len(b) > 0 && err == nil; b, off = b[n:], off+int64(n) {
		n, err = unix.Pwrite(fd, b, off)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
			unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		_ = unix.Close(fd) // it is of no use
		return -1, fmt.Errorf("write a memory file: %w", err)
	}
	return fd, nil
}

// read reads what write wrote. With an error as much of x is set as could be read.
func read(fd int) (x index, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return x, fmt.Errorf("read the index: %w", err)
	}
	b := make([]byte, st.Size)
	for got := 0; got < len(b); {
		n, err := unix.Pread(fd, b[got:], int64(got))
		if err != nil || n == 0 {
			return x, errors.Join(errors.New("read the index: it ends early"), err)
		}
		got += n
	}
	if err := json.Unmarshal(b, &x); err != nil {
		return x, fmt.Errorf("read the index: %w", err)
	}
	if x.Format != Format {
		return x, fmt.Errorf("the index is of format %d, and this weftd reads %d", x.Format, Format)
	}
	return x, nil
}
