package confine

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// TestFilter runs the filter as the kernel does: what is refused is, by every number that leads there, and what Go's runtime calls is not.
func TestFilter(t *testing.T) {
	const pid = 4711
	for name, arch := range map[string]uint32{
		"this machine": unix.AUDIT_ARCH_X86_64, "386": unix.AUDIT_ARCH_I386, "arm": unix.AUDIT_ARCH_ARM, "ppc64le": unix.AUDIT_ARCH_PPC64LE, "s390x": unix.AUDIT_ARCH_S390X,
	} { // with this machine's numbers
		var raw []bpf.RawInstruction
		for _, i := range filter(arch, refused(false), conditions(arch, pid)) {
			raw = append(raw, bpf.RawInstruction{Op: i.Code, Jt: i.Jt, Jf: i.Jf, K: i.K})
		}
		program, whole := bpf.Disassemble(raw)
		vm, err := bpf.NewVM(program)
		if err != nil || !whole {
			t.Fatal(name, err, whole)
		}
		// A packet has its numbers in network order, which is all that the VM of packets knows.
		run := func(machine, call uint32, arguments ...uint32) int {
			b := make([]byte, 64)
			binary.BigEndian.PutUint32(b[callAt:], call)
			binary.BigEndian.PutUint32(b[machineAt:], machine)
			for i, v := range arguments {
				at := argumentAt + 8*i
				if arch == unix.AUDIT_ARCH_S390X {
					at += 4
				}
				binary.BigEndian.PutUint32(b[at:], v)
			}
			said, err := vm.Run(b)
			if err != nil {
				t.Fatal(name, err)
			}
			return said
		}
		const allow, deny, absent = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | int(unix.EPERM), unix.SECCOMP_RET_ERRNO | int(unix.ENOSYS)
		for _, c := range refused(false) {
			if said := run(arch, c); said != deny {
				t.Errorf("%s: call %d: %#x", name, c, said)
			}
		}
		clone := func(flags uint32) []uint32 {
			if arch == unix.AUDIT_ARCH_S390X {
				return []uint32{unix.CLONE_NEWUSER, flags} // the first is a stack's address
			}
			return []uint32{flags, unix.CLONE_NEWUSER}
		}
		is := func(condition bool, then, otherwise int) int {
			if condition {
				return then
			}
			return otherwise
		}
		narrow := arch == unix.AUDIT_ARCH_I386 || arch == unix.AUDIT_ARCH_ARM
		calls := is(arch == unix.AUDIT_ARCH_I386 || arch == unix.AUDIT_ARCH_PPC64LE || arch == unix.AUDIT_ARCH_S390X, deny, allow)
		for _, c := range []struct {
			what          string
			machine, call uint32
			arguments     []uint32
			want          int
		}{
			{"read", arch, unix.SYS_READ, nil, allow},
			{"sendmmsg", arch, unix.SYS_SENDMMSG, nil, allow},
			{"a number to come", arch, 5000, nil, allow},
			{"read of another machine", arch ^ 1, unix.SYS_READ, nil, deny},
			{"read of x32", arch, numbersOfX32 | unix.SYS_READ, nil, deny},
			{"a new thread", arch, unix.SYS_CLONE, clone(unix.CLONE_VM | unix.CLONE_THREAD), allow},
			{"a new user namespace", arch, unix.SYS_CLONE, clone(unix.CLONE_VM | unix.CLONE_NEWUSER), deny},
			{"clone3", arch, unix.SYS_CLONE3, nil, absent},
			{"a signal to a thread of its own", arch, unix.SYS_TGKILL, []uint32{pid, 4712, uint32(unix.SIGURG)}, allow},
			{"a signal to another's thread", arch, unix.SYS_TGKILL, []uint32{1, 1, uint32(unix.SIGKILL)}, deny},
			{"its own limits", arch, unix.SYS_PRLIMIT64, []uint32{0, unix.RLIMIT_NOFILE}, allow},
			{"another's limits", arch, unix.SYS_PRLIMIT64, []uint32{1, unix.RLIMIT_NOFILE}, deny},
			{"not to wait", arch, unix.SYS_FCNTL, []uint32{unix.F_SETOWN, unix.F_SETFL, unix.F_SETOWN}, allow},
			{"a descriptor's owner", arch, unix.SYS_FCNTL, []uint32{3, unix.F_SETOWN, 1}, deny},
			{"a descriptor's owner, of a thread", arch, unix.SYS_FCNTL, []uint32{3, unix.F_SETOWN_EX}, deny},
			{"a descriptor's signal", arch, unix.SYS_FCNTL, []uint32{3, unix.F_SETSIG, uint32(unix.SIGKILL)}, deny},
			{"a descriptor's owner, of 32 bits", arch, fcntl64, []uint32{3, unix.F_SETOWN, 1}, is(narrow, deny, allow)},
			{"not to wait, of 32 bits", arch, fcntl64, []uint32{3, unix.F_SETFL}, allow},
			{"an interface's settings", arch, unix.SYS_IOCTL, []uint32{3, unix.TUNSETOFFLOAD}, allow},
			{"a socket's owner", arch, unix.SYS_IOCTL, []uint32{3, unix.SIOCSPGRP}, deny},
			{"a socket's owner, by its other name", arch, unix.SYS_IOCTL, []uint32{3, fioSetOwn}, deny},
			{"a socket by socketcall", arch, socketCall, []uint32{socketCallSocket}, calls},
			{"a pair by socketcall", arch, socketCall, []uint32{socketCallPair}, calls},
			{"sendmsg by socketcall", arch, socketCall, []uint32{16}, allow},
		} {
			if said := run(c.machine, c.call, c.arguments...); said != c.want {
				t.Errorf("%s: %s: %#x, want %#x", name, c.what, said, c.want)
			}
		}
	}
}

// TestNumbers: what only some machines have is refused by the number that it has there, and files are changed where that is asked for.
func TestNumbers(t *testing.T) {
	cmd := exec.Command("go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	ofFiles := []string{"UTIME", "CHOWN32", "LCHOWN32", "FCHOWN32", "TRUNCATE64", "UTIMENSAT_TIME64"}
	for name, arch := range machines() {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "zsysnum_linux_"+name+".go"))
		if err != nil {
			t.Fatal(err)
		}
		var all, others []uint32
		for _, m := range regexp.MustCompile(`(?m)^\s+SYS_(\w+)\s+= (\d+)`).FindAllStringSubmatch(string(text), -1) {
			n, err := strconv.Atoi(m[2])
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case slices.Contains([]string{"SEMOP", "SEMTIMEDOP", "SEMTIMEDOP_TIME64", "IPC"}, m[1]):
				all, others = append(all, uint32(n)), append(others, uint32(n))
			case slices.Contains(ofFiles, m[1]):
				all = append(all, uint32(n))
			case m[1] == "SOCKETCALL" && n != socketCall, m[1] == "FCNTL64" && n != fcntl64:
				t.Errorf("%s: %s is %d", name, m[1], n)
			}
		}
		if name == "arm" {
			all = append(all, 30) // utime, of the ABI that is no more
		}
		for files, want := range map[bool][]uint32{false: all, true: others} {
			got := ofMachine(arch, files)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s, files %t: %v, want %v", name, files, got, want)
			}
		}
	}
	for _, c := range refused(true) {
		if c == unix.SYS_RENAMEAT2 || c == unix.SYS_FCHMODAT || c == unix.SYS_UNLINKAT {
			t.Errorf("call %d is refused to a process that writes files", c)
		}
	}
}
