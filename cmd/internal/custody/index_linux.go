package custody

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// entry is what the index says of one item. The numbers are those of fds, in the same order.
type entry struct {
	Name     string   `json:"name"`
	Meta     []byte   `json:"meta,omitempty"`
	Numbers  []uint64 `json:"numbers"`
	Optional bool     `json:"optional,omitempty"`

	fds   []int
	taken bool // Take has returned it, or Put made it
}

// index is a memory file of three parts: the time of the last sign of life, and two slots. Each write goes to
// the slot that is not in force, so a program that dies while it writes leaves the other one.
//
//	0                8   the boot clock in nanoseconds, little endian
//	4096 + k*slot    4   version
//	                 4   length of the body
//	                 8   sequence number: of two good slots the higher one is in force
//	                 4   CRC-32 of the 16 bytes before and the body
//	                 …   body: entries in JSON
type index struct {
	f        *os.File
	sequence uint64
}

const (
	indexVersion = 3 // 2 was one memory file for each item
	slotsAt      = 4096
	slotSize     = 128 << 20 // the file has holes: an unused part takes no memory
	slotHeader   = 20
)

func newIndex() (*index, error) {
	fd, err := unix.MemfdCreate("weft-index", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a memory file: %w", err)
	}
	return openIndex(fd), nil
}

// openIndex takes fd over.
func openIndex(fd int) *index { return &index{f: os.NewFile(uintptr(fd), "index")} }

func (x *index) close() { _ = x.f.Close() } // memory has nothing left to write

func (x *index) fd() int { return int(x.f.Fd()) }

// write puts entries in force.
func (x *index) write(entries []entry) error {
	body, err := json.Marshal(entries)
	if err != nil {
		return err
	}
	if len(body) > slotSize-slotHeader {
		return fmt.Errorf("an index of %d bytes is too long", len(body))
	}
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, slotHeader+len(body)), indexVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	b = binary.LittleEndian.AppendUint64(b, x.sequence+1)
	b = binary.LittleEndian.AppendUint32(b, crc32.Update(crc32.ChecksumIEEE(b), crc32.IEEETable, body))
	if _, err := x.f.WriteAt(append(b, body...), slotAt(x.sequence+1)); err != nil {
		return fmt.Errorf("write the index: %w", err)
	}
	x.sequence++
	return nil
}

func slotAt(sequence uint64) int64 { return slotsAt + int64(sequence%2)*slotSize }

// read returns the entries that are in force.
func (x *index) read() (entries []entry, err error) {
	var bodies [2][]byte
	var faults []error
	best := -1
	for k := range bodies {
		body, sequence, err := x.slot(slotAt(uint64(k)))
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if bodies[k] = body; best < 0 || sequence > x.sequence {
			best, x.sequence = k, sequence
		}
	}
	if best < 0 {
		return nil, fmt.Errorf("read the index: %w", errors.Join(faults...))
	}
	if err := json.Unmarshal(bodies[best], &entries); err != nil {
		return nil, fmt.Errorf("read the index: %w", err)
	}
	return entries, nil
}

func (x *index) slot(at int64) (body []byte, sequence uint64, err error) {
	var h [slotHeader]byte
	if _, err := x.f.ReadAt(h[:], at); err != nil {
		return nil, 0, fmt.Errorf("slot at %d: %w", at, err)
	}
	version, length := binary.LittleEndian.Uint32(h[:]), binary.LittleEndian.Uint32(h[4:])
	if version != indexVersion || length > slotSize-slotHeader {
		return nil, 0, fmt.Errorf("slot at %d: version %d with %d bytes, and this weftd reads version %d",
			at, version, length, indexVersion)
	}
	if info, err := x.f.Stat(); err != nil || at+slotHeader+int64(length) > info.Size() {
		return nil, 0, errors.Join(fmt.Errorf("slot at %d: it ends early", at), err)
	}
	body = make([]byte, length)
	if _, err := x.f.ReadAt(body, at+slotHeader); err != nil {
		return nil, 0, fmt.Errorf("slot at %d: %w", at, err)
	}
	if crc32.Update(crc32.ChecksumIEEE(h[:16]), crc32.IEEETable, body) != binary.LittleEndian.Uint32(h[16:]) {
		return nil, 0, fmt.Errorf("slot at %d: its checksum is wrong", at)
	}
	return body, binary.LittleEndian.Uint64(h[8:]), nil
}

// whole returns the entries of which fds has every number, with their descriptors, which stay where they are.
func (x *index) whole(fds map[uint64]int) (entries []entry, err error) {
	all, err := x.read()
	used := map[uint64]bool{0: true}
	for _, e := range all {
		for _, n := range e.Numbers {
			fd, ok := fds[n]
			if !ok || used[n] {
				break
			}
			used[n] = true
			e.fds = append(e.fds, fd)
		}
		if e.Name != "" && len(e.fds) > 0 && len(e.fds) == len(e.Numbers) {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, byNumber)
	return entries, err
}

func byNumber(a, b entry) int { return slices.Compare(a.Numbers, b.Numbers) }

// stamp notes that weftd is alive.
func (x *index) stamp() {
	b := binary.LittleEndian.AppendUint64(nil, uint64(SinceBoot()))
	_, _ = x.f.WriteAt(b, 0) // without it the next weftd delivers what waited
}

// away is how long ago the last stamp was.
func (x *index) away() time.Duration {
	var b [8]byte
	if _, err := x.f.ReadAt(b[:], 0); err != nil {
		return 0
	}
	return max(SinceBoot()-time.Duration(binary.LittleEndian.Uint64(b[:])), 0)
}

// SinceBoot is the time since the machine started, also while it was suspended.
func SinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // every kernel since 2.6.39 has it
	}
	return time.Duration(ts.Nano())
}
