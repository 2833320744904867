package confine

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refused are the system calls by which a process gets at more than its descriptors: programs, sockets, other processes, namespaces, mounts, and
// ways around a filter. It is no list of what is allowed: Go's runtime calls others from version to version, and one that was forgotten would stop
// packets on somebody's kernel. A file that is not open is landlock's business.
func refused() []uint32 {
	return []uint32{
		unix.SYS_EXECVE, unix.SYS_EXECVEAT,
		unix.SYS_SOCKET, unix.SYS_SOCKETPAIR,
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KILL, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL,
		unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT, unix.SYS_PIVOT_ROOT,
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_OPEN_BY_HANDLE_AT,
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	}
}

// machines are what the kernel calls the machine that a system call's number is of, linux/audit.h.
func machine() (arch uint32, ok bool) {
	arch, ok = map[string]uint32{
		"amd64": unix.AUDIT_ARCH_X86_64, "386": unix.AUDIT_ARCH_I386, "arm64": unix.AUDIT_ARCH_AARCH64, "arm": unix.AUDIT_ARCH_ARM,
		"riscv64": unix.AUDIT_ARCH_RISCV64, "ppc64le": unix.AUDIT_ARCH_PPC64LE,
	}[runtime.GOARCH]
	return arch, ok
}

const (
	// Offsets in struct seccomp_data, linux/seccomp.h. Of an argument it is the half that flags and small numbers are in, on a little-endian machine.
	callAt, machineAt, argumentAt = 0, 4, 16

	// numbersOfX32 is what the numbers of amd64's second ABI begin with; no other machine has any as large.
	numbersOfX32 = 0x40000000
	// newNamespace are the flags of clone(2) for new namespaces.
	newNamespace = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	// socketCall is socketcall(2) of 386, whose first argument says which call is meant: these are socket and socketpair, linux/net.h.
	socketCall, socketCallSocket, socketCallPair = 102, 1, 8
)

// filter is the program for the calls: what is refused fails with EPERM, as for want of a capability.
func filter(arch uint32, calls []uint32) []unix.SockFilter {
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	says := func(what, errno uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: what | errno}
	}
	test := func(by uint16, k uint32, then, otherwise uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | by | unix.BPF_K, Jt: then, Jf: otherwise, K: k}
	}
	refuse := says(unix.SECCOMP_RET_ERRNO, uint32(unix.EPERM))
	p := []unix.SockFilter{
		load(machineAt), test(unix.BPF_JEQ, arch, 1, 0), refuse, // another machine's numbers are none of ours
		load(callAt), test(unix.BPF_JGE, numbersOfX32, 0, 1), refuse,
		test(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), says(unix.SECCOMP_RET_ERRNO, uint32(unix.ENOSYS)), // its flags cannot be seen: clone(2) is taken instead
	}
	for _, c := range calls {
		p = append(p, test(unix.BPF_JEQ, c, 0, 1), refuse)
	}
	allow := says(unix.SECCOMP_RET_ALLOW, 0)
	p = append(p, test(unix.BPF_JEQ, unix.SYS_CLONE, 0, 4), load(argumentAt), test(unix.BPF_JSET, newNamespace, 0, 1), refuse, allow)
	if arch == unix.AUDIT_ARCH_I386 {
		p = append(p, test(unix.BPF_JEQ, socketCall, 0, 4), load(argumentAt), test(unix.BPF_JEQ, socketCallSocket, 1, 0), test(unix.BPF_JEQ, socketCallPair, 0, 1), refuse)
	}
	return append(p, allow)
}

// ErrNoFilter says that this kernel filters no system calls, or not on this machine.
var ErrNoFilter = errors.New("system calls are not filtered here (seccomp)")

// Calls has the kernel refuse this process, in all its threads, and what it starts, the calls of refused. It needs no_new_privs on none but the
// calling thread, and works in a program with C code too.
func Calls() error {
	arch, ok := machine()
	if !ok {
		return fmt.Errorf("%w: %s", ErrNoFilter, runtime.GOARCH)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	program := filter(arch, slices.Compact(refused()))
	p := &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// Without the second flag kernels before 5.16 slow the process down against reading what it itself may read.
	for _, flags := range []uintptr{unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, unix.SECCOMP_FILTER_FLAG_TSYNC} {
		n, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(p)))
		runtime.KeepAlive(program)
		switch {
		case errno == unix.EINVAL:
			continue
		case errno != 0:
			return fmt.Errorf("%w: %w", ErrNoFilter, errno)
		case n != 0:
			return fmt.Errorf("seccomp: thread %d has another filter", n)
		}
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNoFilter, unix.EINVAL)
}
