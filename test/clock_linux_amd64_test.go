package test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
)

// stepped is a process whose wall clock is off by as much as the test says, and nobody else's: the machine's
// clock is left alone.
//
// A program reads clocks by the kernel's vDSO (vdso(7)), of which each process has a copy of its own as soon
// as it is written to. There, clock_gettime jumps to code that asks the kernel and adds the offset to
// CLOCK_REALTIME. The monotonic clock goes on as it is, as it does when somebody sets a machine's time.
type stepped struct {
	mem    *os.File // the process's memory
	offset int64    // where the seconds are that are added
}

// clockCode is for amd64, and has eight bytes of data, the offset, at its end. rdi has the clock, rsi where
// the answer goes; r11 and rcx are the kernel's and the caller's to lose (System V ABI).
var clockCode = []byte{
	0xb8, 0xe4, 0, 0, 0, // mov $228, %eax: clock_gettime
	0x0f, 0x05, // syscall
	0x85, 0xc0, // test %eax, %eax
	0x75, 0x0e, // jne end
	0x85, 0xff, // test %edi, %edi: CLOCK_REALTIME is 0
	0x75, 0x0a, // jne end
	0x48, 0x8b, 0x0d, 0x04, 0, 0, 0, // mov offset(%rip), %rcx
	0x48, 0x01, 0x0e, // add %rcx, (%rsi): tv_sec
	0xc3,                   // end: ret
	0, 0, 0, 0, 0, 0, 0, 0, // offset
}

// stepClock prepares the process of that id, which is stopped meanwhile.
func stepClock(t *testing.T, pid int) *stepped {
	t.Helper()
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mem.Close() })
	base, size := vdsoOf(t, pid)
	image := make([]byte, size)
	if _, err := mem.ReadAt(image, base); err != nil {
		t.Fatal(err)
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]elf.Symbol{}
	for _, s := range symbols {
		at[s.Name] = s
	}
	asked, room := at["__vdso_clock_gettime"], at["__vdso_gettimeofday"] // the second one Go has no need of
	if asked.Size < 5 || room.Size < uint64(len(clockCode)) {
		t.Fatalf("another vDSO than this test knows: %+v", symbols)
	}
	const jump = 5 // bytes
	from, to := int64(asked.Value), int64(room.Value)
	jmp := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(int32(to-from-jump)))

	// No thread may be within the bytes that change. Where each one is, a process says that is stopped.
	await.OK(t, "a moment in which nobody reads the clock", func() error {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Kill(pid, unix.SIGCONT) }()
		err := allStopped(pid, uint64(base+from), uint64(base+from+jump))
		for end := time.Now().Add(time.Second); errors.Is(err, errRuns) && time.Now().Before(end); {
			// each thread stops by itself
			time.Sleep(time.Millisecond)
			err = allStopped(pid, uint64(base+from), uint64(base+from+jump))
		}
		if err != nil {
			return err
		}
		if _, err := mem.WriteAt(clockCode, base+to); err != nil {
			t.Fatalf("write to the vDSO of process %d: %v", pid, err)
		}
		if _, err := mem.WriteAt(jmp, base+from); err != nil {
			t.Fatalf("write to the vDSO of process %d: %v", pid, err)
		}
		return nil
	})
	return &stepped{mem: mem, offset: base + to + int64(len(clockCode)) - 8}
}

// by sets how far the clock is ahead of the machine's; less than 0 is behind.
func (s *stepped) by(t *testing.T, ahead time.Duration) {
	t.Helper()
	b := binary.LittleEndian.AppendUint64(nil, uint64(int64(ahead.Seconds())))
	if _, err := s.mem.WriteAt(b, s.offset); err != nil {
		t.Fatal(err)
	}
}

// vdsoOf is where the kernel has put the vDSO of a process.
func vdsoOf(t *testing.T, pid int) (base, size int64) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			var end int64
			if _, err := fmt.Sscanf(line, "%x-%x", &base, &end); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			return base, end - base
		}
	}
	t.Fatalf("process %d has no vDSO:\n%s", pid, maps)
	return 0, 0
}

// errRuns is wrapped by what allStopped says of a thread that has not come to rest.
var errRuns = errors.New("it still runs")

// allStopped reports whether all threads of a process are stopped, and none at an address from begin to end.
func allStopped(pid int, begin, end uint64) error {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(tasks) == 0 {
		return fmt.Errorf("no thread of process %d: %w", pid, err)
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(task + "/stat")
		if err != nil {
			return err
		}
		if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "T") {
			return fmt.Errorf("%s: %w: %s", task, errRuns, stat)
		}
		where, err := os.ReadFile(task + "/syscall") // proc_pid_syscall(5): the last word is the program counter
		if err != nil {
			return err
		}
		words := strings.Fields(string(where))
		if len(words) == 0 || words[0] == "running" {
			return fmt.Errorf("%s: %w: %q", task, errRuns, where)
		}
		pc, err := strconv.ParseUint(strings.TrimPrefix(words[len(words)-1], "0x"), 16, 64)
		if err != nil || pc >= begin && pc < end {
			return fmt.Errorf("%s is at %s: %w", task, where, err)
		}
	}
	return nil
}

// TestClockSteps sets the wall clock of one weftd, and not that of its neighbour, a day and a half ahead,
// which is more than a lease lasts, and as much behind, and starts it again each time with the machine's own.
// Nobody's lease ends by that, no peer goes, what is written and deleted is learnt, and pods' packets pass.
func TestClockSteps(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{Nodes: 2, NetworkConfig: []byte(ipv4Only)})
	n, other := l.Node(1), l.Node(2)
	reach(t, await.Patience, n.Pods[0], other.Pods[0], 4)
	subnet, others := current(t, n).Lease.Subnet, current(t, other).Lease.Subnet
	record, neighbours := recordAt(t, l, subnet.String()), recordAt(t, l, others.String())
	written := 0
	goesOn := func(when string) {
		t.Helper()
		written++
		third := fmt.Sprintf("10.42.%d.0", 240+written)
		key := prefix + "/subnets/" + third + "-24"
		put(t, l.Store, key, `{"PublicIP":"198.18.0.250","PublicIPv6":null}`, time.Hour)
		knows(t, n, await.Patience, third+"/24", true)
		knows(t, n, await.Patience, others.String(), true)
		del(t, l.Store, key)
		knows(t, n, await.Patience, third+"/24", false)
		knows(t, other, await.Patience, third+"/24", false)
		reach(t, await.Patience, n.Pods[0], other.Pods[0], 4)
		reach(t, await.Patience, other.Pods[0], n.Pods[0], 4)
		for _, node := range l.Nodes() {
			status(t, node, await.Patience, func(s statusJSON) error {
				if !s.Ready || s.Lease == nil || !s.Lease.Held || s.Peers != 1 || s.Alarm != "" || s.Rejected != 0 {
					return fmt.Errorf("%s: ready %v %q, lease %+v, %d peers, alarm %q", when, s.Ready, s.NotReady, s.Lease,
						s.Peers, s.Alarm)
				}
				return nil
			})
		}
		if now := recordAt(t, l, others.String()); now != neighbours {
			t.Errorf("%s: the neighbour's record is %+v, was %+v", when, now, neighbours)
		}
		if now := recordAt(t, l, subnet.String()); now.value != record.value {
			t.Errorf("%s: the record is %+v, was %+v", when, now, record)
		}
	}
	goesOn("before")
	for _, ahead := range []time.Duration{36 * time.Hour, -36 * time.Hour} {
		clock := stepClock(t, n.Daemon.PID())
		clock.by(t, ahead)
		// What it says of a time is by its own clock, which so shows that this has been set.
		status(t, n, await.Patience, func(s statusJSON) error {
			if off := time.Until(s.Store.LastSeen) - ahead; off.Abs() > time.Hour {
				return fmt.Errorf("it last saw the store at %s by a clock that is %s ahead", s.Store.LastSeen, ahead)
			}
			return nil
		})
		goesOn(fmt.Sprintf("%s ahead", ahead))
		if now := recordAt(t, l, subnet.String()); now != record {
			t.Errorf("%s ahead: the record was written again: %+v, was %+v", ahead, now, record)
		}
		clock.by(t, 0) // back, as somebody does who has seen the mistake, and ahead once more
		goesOn(fmt.Sprintf("no longer %s ahead", ahead))
		clock.by(t, ahead)
		goesOn(fmt.Sprintf("%s ahead once more", ahead))
		if err := n.Restart(await.Context(t, await.Patience)); err != nil {
			t.Fatal(lab.Explain(err))
		}
		goesOn(fmt.Sprintf("started again after %s ahead", ahead))
		record = recordAt(t, l, subnet.String())
	}
}
