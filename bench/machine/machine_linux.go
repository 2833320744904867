// Package machine describes the machine on which something is measured, and what else ran there meanwhile.
package machine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weft/bench/load"
	"weft/bench/report"
)

// Watch is what Observe saw of a machine. Since compares it with a later time.
type Watch struct {
	report.Machine
	at  time.Time
	cpu load.CPU
}

// Observe begins a Watch of this machine, now.
func Observe() (w Watch, err error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return w, fmt.Errorf("uname: %w", err)
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return w, err
	}
	w.Machine = report.Machine{
		Hostname: unix.ByteSliceToString(u.Nodename[:]), Kernel: unix.ByteSliceToString(u.Release[:]),
		CPUs: runtime.NumCPU(), Model: model(string(info)), Go: runtime.Version(), Privilege: privilege(),
		Boot: BootID(),
	}
	if w.LoadBefore, err = loadavg(); err != nil {
		return w, err
	}
	w.at = time.Now()
	w.cpu, err = load.ReadCPU()
	return w, err
}

// Since returns the machine with the shares of its processor time since Observe that were used and stolen.
func (w Watch) Since() (report.Machine, error) {
	m := w.Machine
	cpu, err := load.ReadCPU()
	if err != nil {
		return m, err
	}
	if m.LoadAfter, err = loadavg(); err != nil {
		return m, err
	}
	cpu = cpu.Sub(w.cpu)
	whole := time.Since(w.at).Seconds() * float64(m.CPUs)
	m.Busy, m.Stolen = min(cpu.Machine.Seconds()/whole, 1), min(cpu.Stolen.Seconds()/whole, 1)
	return m, nil
}

// BootID is the same for two processes of one machine, in whatever namespaces they are;
// empty if it cannot be read.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func loadavg() (string, error) {
	b, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(b)); err == nil && len(f) >= 3 {
		return strings.Join(f[:3], " "), nil
	}
	return "", err
}

func model(info string) string {
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// privilege says whether this process is root or only the root of a user namespace, who may have smaller
// socket buffers.
func privilege() string {
	b, err := os.ReadFile("/proc/self/uid_map")
	f := strings.Fields(string(b))
	switch {
	case err == nil && len(f) == 3 && f[2] == "1":
		return "in a user namespace"
	case os.Geteuid() == 0:
		return "as root"
	}
	return "as an ordinary user"
}

// Resident returns how much memory a process holds now, and the most it has held, in bytes.
func Resident(pid int) (now, peak uint64, err error) {
	name := fmt.Sprintf("/proc/%d/status", pid)
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line) // VmRSS: 1234 kB
		if len(f) != 3 {
			continue
		}
		n, _ := strconv.ParseUint(f[1], 10, 64) // 0 for anything but a number, which the kernel does not write
		switch f[0] {
		case "VmRSS:":
			now = n << 10
		case "VmHWM:":
			peak = n << 10
		}
	}
	if now == 0 || peak == 0 {
		return now, peak, fmt.Errorf("%s: %w", name, errors.New("no VmRSS and VmHWM: has the process ended?"))
	}
	return now, peak, nil
}
