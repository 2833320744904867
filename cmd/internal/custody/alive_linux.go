package custody

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// storeAlive puts into the store the memory file by which the next weftd knows when this one was last alive: the service
// manager does not say it.
func (m *manager) storeAlive() error {
	fd, err := unix.MemfdCreate("weft-alive", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make a memory file: %w", err)
	}
	m.alive = fd
	m.stamp()
	if err := m.notify("FDSTORE=1\nFDPOLL=0\nFDNAME="+aliveName, []int{fd}); err != nil {
		_ = unix.Close(fd) // it is of no use
		m.alive = -1
		return err
	}
	m.used++
	return nil
}

// stamp writes the time since the machine started, also while it was suspended.
func (m *manager) stamp() {
	if m.alive >= 0 {
		_, _ = unix.Pwrite(m.alive, binary.LittleEndian.AppendUint64(nil, uint64(sinceBoot())), 0) // memory that is there
	}
}

// sinceAlive returns how long ago the last stamp was; 0 if that cannot be so.
func (m *manager) sinceAlive() time.Duration {
	var b [8]byte
	if n, err := unix.Pread(m.alive, b[:], 0); err != nil || n != len(b) {
		return 0
	}
	return max(sinceBoot()-time.Duration(binary.LittleEndian.Uint64(b[:])), 0)
}

func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // every kernel since 2.6.39 has it
	}
	return time.Duration(ts.Nano())
}
