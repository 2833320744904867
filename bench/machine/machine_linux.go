// Package machine describes the machine on which something is measured, and what else ran there meanwhile.
package machine

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"
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
	w.Machine = report.Machine{
		Hostname: unix.ByteSliceToString(u.Nodename[:]), Kernel: unix.ByteSliceToString(u.Release[:]),
		CPUs: runtime.NumCPU(), Model: model(), Go: runtime.Version(), Privilege: privilege(),
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
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return "", err
	}
	l, err := proc.LoadAvg()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%.2f %.2f %.2f", l.Load1, l.Load5, l.Load15), nil
}

// model is that of the first processor, or the architecture if the kernel does not say.
func model() string {
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if all, err := proc.CPUInfo(); err == nil && len(all) > 0 && all[0].ModelName != "" {
			return all[0].ModelName
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
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, err
	}
	s, err := p.NewStatus()
	if err == nil && (s.VmRSS == 0 || s.VmHWM == 0) {
		err = fmt.Errorf("process %d has no VmRSS and VmHWM: has it ended?", pid)
	}
	return s.VmRSS, s.VmHWM, err
}
