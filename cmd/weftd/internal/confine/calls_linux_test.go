package confine

import (
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// TestFilter runs the filter as the kernel does: what is refused is, by every number that leads there, and what Go's runtime calls is not.
func TestFilter(t *testing.T) {
	for name, arch := range map[string]uint32{"this machine": unix.AUDIT_ARCH_X86_64, "386": unix.AUDIT_ARCH_I386} {
		var raw []bpf.RawInstruction
		for _, i := range filter(arch, refused()) {
			raw = append(raw, bpf.RawInstruction{Op: i.Code, Jt: i.Jt, Jf: i.Jf, K: i.K})
		}
		program, whole := bpf.Disassemble(raw)
		vm, err := bpf.NewVM(program)
		if err != nil || !whole {
			t.Fatal(name, err, whole)
		}
		// A packet has its numbers in network order, which is all that the VM of packets knows.
		run := func(machine, call, argument uint32) int {
			b := make([]byte, 64)
			for at, v := range map[int]uint32{callAt: call, machineAt: machine, argumentAt: argument} {
				b[at], b[at+1], b[at+2], b[at+3] = byte(v>>24), byte(v>>16), byte(v>>8), byte(v)
			}
			said, err := vm.Run(b)
			if err != nil {
				t.Fatal(name, err)
			}
			return said
		}
		const allow, deny, absent = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | int(unix.EPERM), unix.SECCOMP_RET_ERRNO | int(unix.ENOSYS)
		for _, c := range refused() {
			if said := run(arch, c, 0); said != deny {
				t.Errorf("%s: call %d: %#x", name, c, said)
			}
		}
		for _, c := range []struct {
			what                    string
			machine, call, argument uint32
			want                    int
		}{
			{"read", arch, unix.SYS_READ, 0, allow},
			{"sendmmsg", arch, unix.SYS_SENDMMSG, 0, allow},
			{"a number to come", arch, 5000, 0, allow},
			{"read of another machine", arch ^ 1, unix.SYS_READ, 0, deny},
			{"read of x32", arch, numbersOfX32 | unix.SYS_READ, 0, deny},
			{"a new thread", arch, unix.SYS_CLONE, unix.CLONE_VM | unix.CLONE_THREAD, allow},
			{"a new user namespace", arch, unix.SYS_CLONE, unix.CLONE_VM | unix.CLONE_NEWUSER, deny},
			{"clone3", arch, unix.SYS_CLONE3, 0, absent},
		} {
			if said := run(c.machine, c.call, c.argument); said != c.want {
				t.Errorf("%s: %s: %#x, want %#x", name, c.what, said, c.want)
			}
		}
		if arch != unix.AUDIT_ARCH_I386 {
			continue
		}
		for argument, want := range map[uint32]int{socketCallSocket: deny, socketCallPair: deny, 16: allow, 9: allow} {
			if said := run(arch, socketCall, argument); said != want {
				t.Errorf("%s: socketcall %d: %#x, want %#x", name, argument, said, want)
			}
		}
	}
}
