package confine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refused are the system calls by which a process gets at more than its descriptors: programs, sockets, other processes, namespaces, mounts, keys and
// memory that others share, and ways around a filter. It is no list of what is allowed: Go's runtime calls others from version to version, and one that
// was forgotten would stop packets on somebody's kernel. To open a file is landlock's business; what changes one by its name is among them unless files.
//
// riscv64's runtime raises a signal that ends the process by tkill(2), and exits if that fails; the others take tgkill(2).
func refused(files bool) []uint32 {
	calls := []uint32{
		unix.SYS_EXECVE, unix.SYS_EXECVEAT,
		unix.SYS_SOCKET, unix.SYS_SOCKETPAIR,
		unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL,
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE, unix.SYS_KCMP,
		unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES,
		unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETAFFINITY,
		unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT, unix.SYS_PIVOT_ROOT,
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_FSMOUNT,
		unix.SYS_MOUNT_SETATTR, unix.SYS_OPEN_BY_HANDLE_AT,
		unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL, unix.SYS_SEMGET, unix.SYS_SEMCTL,
		unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_FANOTIFY_INIT, unix.SYS_INOTIFY_INIT1, unix.SYS_SYSLOG,
	}
	if files {
		return calls
	}
	return append(append(calls,
		unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT,
		unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR,
		unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR, unix.SYS_UTIMENSAT, unix.SYS_TRUNCATE,
		unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_SYMLINKAT, unix.SYS_UNLINKAT, unix.SYS_MKNODAT, unix.SYS_MKDIRAT,
	), byName()...)
}

// condition refuses a call by the lower 32 bits of one argument. The kernel takes no more of those that are looked at here.
type condition struct {
	call     uint32
	argument int // from 0
	by       uint16
	values   []uint32
	only     bool // those values are let through and no others; else they are what is refused
}

// conditions are of calls that are refused in part, on the machine, to the process of that number as it calls itself.
func conditions(arch, pid uint32) []condition {
	flags := 0
	if arch == unix.AUDIT_ARCH_S390X {
		flags = 1 // CONFIG_CLONE_BACKWARDS2
	}
	owner := []uint32{unix.F_SETOWN, unix.F_SETOWN_EX, unix.F_SETSIG} // the kernel sends a signal to whom the owner of a descriptor is said to be
	c := []condition{
		{unix.SYS_CLONE, flags, unix.BPF_JSET, []uint32{newNamespace}, false},
		{unix.SYS_TGKILL, 0, unix.BPF_JEQ, []uint32{pid}, true}, // by which the runtime stops its own threads
		{unix.SYS_PRLIMIT64, 0, unix.BPF_JEQ, []uint32{0}, true},
		{unix.SYS_FCNTL, 1, unix.BPF_JEQ, owner, false},
		{unix.SYS_IOCTL, 1, unix.BPF_JEQ, []uint32{fioSetOwn, unix.SIOCSPGRP}, false},
	}
	switch arch {
	case unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_PPC64LE, unix.AUDIT_ARCH_S390X:
		c = append(c, condition{socketCall, 0, unix.BPF_JEQ, []uint32{socketCallSocket, socketCallPair}, false})
	}
	switch arch {
	case unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM:
		c = append(c, condition{fcntl64, 1, unix.BPF_JEQ, owner, false})
	}
	return c
}

// ofMachine are the numbers of calls that only some machines have, arch/*/kernel/syscalls/*.tbl.
func ofMachine(arch uint32, files bool) (calls []uint32) {
	switch arch {
	case unix.AUDIT_ARCH_X86_64:
		calls = []uint32{65, 220} // semop, semtimedop
	case unix.AUDIT_ARCH_AARCH64, unix.AUDIT_ARCH_RISCV64:
		calls = []uint32{193, 192} // as above
	case unix.AUDIT_ARCH_ARM:
		calls = []uint32{298, 312, 420} // semop, semtimedop, semtimedop_time64
	case unix.AUDIT_ARCH_I386:
		calls = []uint32{117, 420} // ipc, semtimedop_time64
	case unix.AUDIT_ARCH_PPC64LE, unix.AUDIT_ARCH_S390X:
		calls = []uint32{117, 392} // ipc, semtimedop
	}
	if files {
		return calls
	}
	switch arch {
	case unix.AUDIT_ARCH_X86_64:
		return append(calls, 132) // utime
	case unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM:
		return append(calls, 30, 212, 198, 207, 193, 412) // utime, chown32, lchown32, fchown32, truncate64, utimensat_time64
	case unix.AUDIT_ARCH_PPC64LE, unix.AUDIT_ARCH_S390X:
		return append(calls, 30) // utime
	}
	return calls
}

// machines are what the kernel calls the machine that a system call's number is of, linux/audit.h, by Go's names.
func machines() map[string]uint32 {
	return map[string]uint32{
		"amd64": unix.AUDIT_ARCH_X86_64, "386": unix.AUDIT_ARCH_I386, "arm64": unix.AUDIT_ARCH_AARCH64, "arm": unix.AUDIT_ARCH_ARM,
		"riscv64": unix.AUDIT_ARCH_RISCV64, "ppc64le": unix.AUDIT_ARCH_PPC64LE, "s390x": unix.AUDIT_ARCH_S390X,
	}
}

const (
	// Offsets in struct seccomp_data, linux/seccomp.h. Of an argument, of which each has eight bytes, the first half is the lower one on a
	// little-endian machine.
	callAt, machineAt, argumentAt = 0, 4, 16

	// numbersOfX32 is what the numbers of amd64's second ABI begin with; no other machine has any as large.
	numbersOfX32 = 0x40000000
	// newNamespace are the flags of clone(2) for new namespaces.
	newNamespace = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	// socketCall is socketcall(2) of 386, ppc64le and s390x, whose first argument says which call is meant: these are socket and socketpair, linux/net.h.
	socketCall, socketCallSocket, socketCallPair = 102, 1, 8
	// fcntl64 is fcntl(2) of machines of 32 bits once more.
	fcntl64 = 221
	// fioSetOwn is SIOCSPGRP by another name, asm-generic/sockios.h.
	fioSetOwn = 0x8901
)

// filter is the program for the calls and conditions: what is refused fails with EPERM, as for want of a capability.
func filter(arch uint32, calls []uint32, conditions []condition) []unix.SockFilter {
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
	for _, c := range conditions {
		hit, miss := refuse, allow
		if c.only {
			hit, miss = allow, refuse
		}
		at := uint32(argumentAt + 8*c.argument)
		if arch == unix.AUDIT_ARCH_S390X { // the one that is big-endian
			at += 4
		}
		p = append(p, test(unix.BPF_JEQ, c.call, 0, uint8(2*len(c.values)+2)), load(at))
		for _, v := range c.values {
			p = append(p, test(c.by, v, 0, 1), hit)
		}
		p = append(p, miss)
	}
	return append(p, allow)
}

// ErrNoFilter says that this kernel filters no system calls, or not on this machine.
var ErrNoFilter = errors.New("system calls are not filtered here (seccomp)")

// Calls has the kernel refuse this process, in all its threads, and what it starts, the calls of refused and those that conditions says. It needs
// no_new_privs on none but the calling thread, and works in a program with C code too.
func Calls(files bool) error {
	arch, ok := machines()[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("%w: %s", ErrNoFilter, runtime.GOARCH)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	program := filter(arch, append(refused(files), ofMachine(arch, files)...), conditions(arch, uint32(os.Getpid())))
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
