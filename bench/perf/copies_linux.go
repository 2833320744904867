package perf

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Copies samples which instruction every processor is executing, at most a thousand times a second.
type Copies struct{ cpus []sampled }

// sampled is one processor's event with its ring of samples.
type sampled struct {
	fd   int
	ring []byte
}

// Share is how many samples found a processor busy, and how many of those found it copying.
type Share struct{ Busy, Copying int }

// Percent is the share of the busy time that went into copies in the kernel; 0 without samples.
func (s Share) Percent() float64 {
	if s.Busy == 0 {
		return 0
	}
	return 100 * float64(s.Copying) / float64(s.Busy)
}

const (
	ringPages  = 64
	sampleSize = 16   // bytes: a header of 8, and an address
	mostHertz  = 1000 // samples that each processor gives in a second
)

// SampleCopies begins to sample, and no more often than the rings have room for while last passes. The caller
// stops it.
func SampleCopies(last time.Duration) (*Copies, error) {
	room := ringPages * os.Getpagesize() / sampleSize * 3 / 4
	hertz := min(mostHertz, max(1, int(float64(room)/max(last.Seconds(), 0.1))))
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: uint64(hertz), Sample_type: unix.PERF_SAMPLE_IP, Bits: unix.PerfBitFreq | unix.PerfBitExcludeIdle,
	}
	c := &Copies{}
	for cpu := range runtime.NumCPU() {
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			c.close()
			return nil, fmt.Errorf("perf_event_open for all processors (it takes CAP_PERFMON, or "+
				"kernel.perf_event_paranoid at most 0): %w", err)
		}
		ring, err := unix.Mmap(fd, 0, (1+ringPages)*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED)
		if err != nil {
			_ = unix.Close(fd)
			c.close()
			return nil, fmt.Errorf("map the samples of CPU %d: %w", cpu, err)
		}
		c.cpus = append(c.cpus, sampled{fd, ring})
	}
	return c, nil
}

func (c *Copies) close() {
	for _, s := range c.cpus {
		_ = unix.Munmap(s.ring)
		_ = unix.Close(s.fd)
	}
}

// Stop ends the sampling and returns what was found.
func (c *Copies) Stop() (s Share, err error) {
	defer c.close()
	for _, p := range c.cpus {
		if err := unix.IoctlSetInt(p.fd, unix.PERF_EVENT_IOC_DISABLE, 0); err != nil {
			return s, fmt.Errorf("stop sampling: %w", err)
		}
	}
	text, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		return s, err
	}
	names, err := parseSymbols(string(text))
	if err != nil {
		return s, err
	}
	for _, p := range c.cpus {
		for _, at := range p.addresses() {
			s.Busy++
			if isCopy(names.at(at)) {
				s.Copying++
			}
		}
	}
	if s.Busy == 0 {
		err = errors.New("perf events gave no sample")
	}
	return s, err
}

// addresses returns the sampled addresses. The ring is a struct perf_event_mmap_page of linux/perf_event.h,
// and then records.
func (s sampled) addresses() (l []uint64) {
	head := atomic.LoadUint64(
		(*uint64)(unsafe.Pointer(&s.ring[unsafe.Offsetof(unix.PerfEventMmapPage{}.Data_head)])))
	data := s.ring[os.Getpagesize():]
	for at := uint64(0); at+sampleSize <= head && at+sampleSize <= uint64(len(data)); {
		kind, size := binary.NativeEndian.Uint32(data[at:]), uint64(binary.NativeEndian.Uint16(data[at+6:]))
		if kind == unix.PERF_RECORD_SAMPLE && size >= sampleSize {
			l = append(l, binary.NativeEndian.Uint64(data[at+8:]))
		}
		if size == 0 {
			break
		}
		at += size
	}
	return l
}

// symbols are the kernel's functions by address.
type symbols []symbol

type symbol struct {
	at   uint64
	name string
}

// parseSymbols reads /proc/kallsyms: lines of address, type and name.
func parseSymbols(text string) (l symbols, err error) {
	known := false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 3 || !strings.Contains("tTwW", f[1]) {
			continue
		}
		at, err := strconv.ParseUint(f[0], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("/proc/kallsyms: %w", err)
		}
		known = known || at != 0
		l = append(l, symbol{at, f[2]})
	}
	if !known {
		return nil, errors.New("/proc/kallsyms has no addresses (kernel.kptr_restrict, or not root)")
	}
	slices.SortStableFunc(l, func(a, b symbol) int { return cmp.Compare(a.at, b.at) })
	return l, nil
}

// at returns the function that contains an address. It is empty below the first function, as for addresses in
// user space.
func (l symbols) at(address uint64) string {
	i, found := slices.BinarySearchFunc(l, address, func(s symbol, at uint64) int {
		return cmp.Compare(s.at, at)
	})
	if !found {
		i--
	}
	if i < 0 {
		return ""
	}
	return l[i].name
}

// isCopy says whether a function's own instructions copy payload to or from user space or between
// buffers, with or without a checksum.
func isCopy(name string) bool {
	for _, prefix := range []string{
		"rep_movs_alternative", "copy_user", "_copy_to_iter", "_copy_from_iter", "copy_page_to_iter",
		"copy_page_from_iter", "_copy_to_user", "_copy_from_user",
		"__arch_copy_", "raw_copy_", "csum_partial_copy", "csum_and_copy", "memcpy", "__memcpy", "memmove",
		"__memmove", "skb_copy_bits", "simple_copy_to_iter",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
