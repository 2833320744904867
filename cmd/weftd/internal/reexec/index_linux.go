package reexec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
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
	ID string `json:"id"`
	// From is the version of the program that left the state, Binary the path of the one that was executed.
	From   string `json:"from"`
	Binary string `json:"binary"`
	// Asked is when the upgrade was asked for, Paused since when nobody reads the ports; both by
	// custody.SinceBoot.
	Asked  time.Duration `json:"asked"`
	Paused time.Duration `json:"paused"`
	// Idle says that the program served no network, so that the next one need not serve one to have arrived.
	Idle bool `json:"idle,omitempty"`
	// Kept is what custody has, and Listeners what is served on, by name.
	Kept      custody.Left   `json:"kept"`
	Listeners map[string]int `json:"listeners"`
}

// Close closes the descriptors that are still there.
func (s *State) Close() {
	rights.Close(slices.Collect(maps.Values(s.Listeners)))
	s.Kept.Close()
	s.Listeners = nil
}

// kept are the descriptors.
func (s *State) kept() []int {
	return slices.AppendSeq(slices.Collect(maps.Values(s.Kept.FDs)), maps.Values(s.Listeners))
}

// duplicate returns s with duplicates of the descriptors.
func (s State) duplicate() (State, error) {
	fds, listeners := s.Kept.FDs, s.Listeners
	s.Kept.FDs, s.Listeners = map[uint64]int{}, map[string]int{}
	for n, fd := range fds {
		own, err := rights.Duplicate([]int{fd})
		if err != nil {
			s.Close()
			return s, fmt.Errorf("take up descriptor %d that was kept: %w", n, err)
		}
		s.Kept.FDs[n] = own[0]
	}
	for name, fd := range listeners {
		own, err := rights.Duplicate([]int{fd})
		if err != nil {
			s.Close()
			return s, fmt.Errorf("take up the listener %q: %w", name, err)
		}
		s.Listeners[name] = own[0]
	}
	return s, nil
}

// index is a State in the memory file, with the numbers of descriptors, and with what only programs need.
type index struct {
	Format int `json:"format"`
	State
	Fault     string `json:"fault,omitempty"` // why the program that was executed gave up
	Before    before `json:"before"`
	Namespace int    `json:"namespace,omitempty"` // of the TUN, without root; it stays open
}

// before is the program that ran before; FD is 0 for none.
type before struct {
	FD   int      `json:"fd,omitempty"`
	Args []string `json:"args,omitempty"`
}

// all are the descriptors of the state, and those that the program itself needs.
func (x *index) all() []int {
	fds := x.kept()
	for _, fd := range []int{x.Before.FD, x.Namespace} {
		if fd > 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// write returns a sealed memory file with x.
func (x *index) write() (*os.File, error) {
	b, err := json.Marshal(x)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("weft-upgrade", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make a memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "index")
	if _, err = f.Write(b); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS,
			unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write a memory file: %w", err), f.Close())
	}
	return f, nil
}

// read reads what write wrote. With an error as much of x is set as could be read.
func read(f *os.File) (x index, err error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, math.MaxInt64))
	if err == nil {
		err = json.Unmarshal(b, &x)
	}
	if err != nil {
		return x, fmt.Errorf("read the index: %w", err)
	}
	if x.Format != Format {
		return x, fmt.Errorf("the index is of format %d, and this weftd reads %d", x.Format, Format)
	}
	return x, nil
}
