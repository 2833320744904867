package overlay

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weft/bench/load"
)

// Machine is where something was measured, and what else ran there.
type Machine struct {
	// Name is the kernel, the CPUs and who we are there.
	Name    string
	loadavg string
	at      time.Time
	cpu     load.CPU
}

// ReadMachine looks at this one, now.
func ReadMachine() (m Machine, err error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return m, fmt.Errorf("uname: %w", err)
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m, err
	}
	avg, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return m, err
	}
	m.loadavg, m.at = strings.TrimSpace(string(avg)), time.Now()
	m.Name = fmt.Sprintf("Linux %s, %d CPUs (%s), %s, %s", unix.ByteSliceToString(u.Release[:]), runtime.NumCPU(), model(string(info)), runtime.Version(), whoami())
	m.cpu, err = load.ReadCPU()
	return m, err
}

func model(info string) string {
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// whoami tells root from the root of a user namespace, whose socket buffers are smaller.
func whoami() string {
	b, err := os.ReadFile("/proc/self/uid_map")
	if f := strings.Fields(string(b)); err == nil && len(f) == 3 && f[2] == "1" {
		return "in a user namespace"
	}
	return "as root"
}

// Load is the load average, with what ran on the CPUs at that moment.
func (m Machine) Load() string { return "loadavg " + m.loadavg }

// LoadSince adds what of the time since an earlier look was stolen.
func (m Machine) LoadSince(earlier Machine) string {
	if m.at.IsZero() {
		return "not reached"
	}
	wall := m.at.Sub(earlier.at)
	cpu := m.cpu.Sub(earlier.cpu)
	whole := wall.Seconds() * float64(runtime.NumCPU())
	return fmt.Sprintf("loadavg %s; %s, CPUs busy %.0f %%, stolen by the host's other guests %.1f %%",
		m.loadavg, wall.Round(time.Second), 100*cpu.Machine.Seconds()/whole, 100*cpu.Stolen.Seconds()/whole)
}
