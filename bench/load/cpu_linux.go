package load

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// CPU is processor time since the machine started, or between two readings (Sub). The kernel counts it in
// ticks of 10 ms, so differences over less than a second mean little.
type CPU struct {
	// Machine is what all processes and the kernel used, on all CPUs. Stolen is what
	// other guests of the same host took meanwhile.
	Machine, Stolen time.Duration
	// Processes is the part of Machine that the processes used that ReadCPU was given.
	Processes time.Duration
	// SoftIRQ is the part of Machine that the kernel spent in soft interrupts, where it handles most packets
	// that arrive. It leaves out the work outside of them, as during a write to a TUN.
	SoftIRQ time.Duration
	// Switches is how often a CPU went on with another thread, of whatever process.
	Switches int64
}

// Sub returns the time between two readings.
func (c CPU) Sub(earlier CPU) CPU {
	return CPU{
		Machine: c.Machine - earlier.Machine, Stolen: c.Stolen - earlier.Stolen,
		Processes: c.Processes - earlier.Processes,
		SoftIRQ:   c.SoftIRQ - earlier.SoftIRQ, Switches: c.Switches - earlier.Switches,
	}
}

// tick is the kernel's USER_HZ, which is 100 on every architecture that Go runs on.
const tick = time.Second / 100

// ReadCPU reads /proc/stat, and /proc/PID/stat of each pid.
func ReadCPU(pids ...int) (c CPU, err error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return c, err
	}
	first, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(first) // cpu user nice system idle iowait irq softirq steal …
	if len(f) < 9 || f[0] != "cpu" {
		return c, fmt.Errorf("/proc/stat begins with %q", first)
	}
	for _, k := range []int{1, 2, 3, 6, 7} {
		c.Machine += ticks(f[k])
	}
	c.Stolen, c.SoftIRQ = ticks(f[8]), ticks(f[7])
	if _, after, ok := strings.Cut(string(b), "\nctxt "); ok {
		number, _, _ := strings.Cut(after, "\n")
		// 0 for anything but a number, which the kernel does not write
		c.Switches, _ = strconv.ParseInt(number, 10, 64)
	}
	for _, pid := range pids {
		name := fmt.Sprintf("/proc/%d/stat", pid)
		b, err := os.ReadFile(name)
		if err != nil {
			return c, err
		}
		// The second field is the program's name in brackets, and may contain anything.
		f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if len(f) < 13 {
			return c, fmt.Errorf("%s: %q", name, b)
		}
		c.Processes += ticks(string(f[11])) + ticks(string(f[12])) // utime, stime
	}
	return c, nil
}

// ticks returns 0 for anything but a number, which the kernel does not write.
func ticks(s string) time.Duration {
	n, _ := strconv.ParseInt(s, 10, 64)
	return time.Duration(n) * tick
}
