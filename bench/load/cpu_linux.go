package load

import (
	"time"

	"github.com/prometheus/procfs"
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

// ReadCPU reads what the machine has used, and the processes of each pid.
func ReadCPU(pids ...int) (c CPU, err error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return c, err
	}
	all, err := proc.Stat()
	if err != nil {
		return c, err
	}
	t := all.CPUTotal
	c.Machine = seconds(t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ)
	c.Stolen, c.SoftIRQ, c.Switches = seconds(t.Steal), seconds(t.SoftIRQ), int64(all.ContextSwitches)
	for _, pid := range pids {
		p, err := proc.Proc(pid)
		if err != nil {
			return c, err
		}
		s, err := p.Stat()
		if err != nil {
			return c, err
		}
		c.Processes += seconds(s.CPUTime())
	}
	return c, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
