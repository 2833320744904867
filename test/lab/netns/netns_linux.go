// Package netns makes hosts out of network namespaces. They have no names: only a thread and a
// descriptor of this process hold each of them, so that the kernel removes them when the
// process ends, however it ends.
//
// Each Namespace has one operating-system thread that lives as long as it does.
// Processes are started from that thread, for two reasons: they inherit its
// namespaces, and the kernel ties the parent-death signal to the thread that
// forked, not to the process. Closing the namespace ends the thread, and the kernel
// then kills what was started in it.
package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrClosed is returned by a Namespace's methods after Close.
var ErrClosed = errors.New("namespace is closed")

// Namespace is a network namespace, with a mount namespace of its own so that /sys
// shows its devices. Its methods may be called from any goroutine.
type Namespace struct {
	name  string
	file  *os.File
	nl    *netlink.Handle
	calls chan func()
	quit  chan struct{}
	dead  chan struct{}

	joined atomic.Bool // whether what is started is in a PID namespace of its own

	mu     sync.RWMutex // held for reading while file is in use, so that Close waits
	closed bool
}

// New makes a namespace with its loopback device up. name is for messages only.
// New needs CAP_SYS_ADMIN in the user namespace in which this process runs.
func New(name string) (*Namespace, error) {
	return begin(name, func() error { return unix.Unshare(unix.CLONE_NEWNET) })
}

// Of returns the namespace that the process with that id is in, as long as it lives. This process needs
// CAP_SYS_ADMIN in the user namespace that owns it as well.
func Of(name string, pid int) (*Namespace, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	defer f.Close()
	return begin(name, func() error { return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET) })
}

// begin makes a Namespace whose thread enter moves to its network namespace.
func begin(name string, enter func() error) (*Namespace, error) {
	n := &Namespace{name: name, calls: make(chan func()), quit: make(chan struct{}), dead: make(chan struct{})}
	made := make(chan error)
	go n.live(made, enter)
	if err := <-made; err != nil {
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	if err := n.setUpLoopback(); err != nil {
		n.Close()
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	return n, nil
}

// live runs on the namespace's thread until Close. It never unlocks the thread, so that the thread ends
// with it and no other goroutine gets it.
func (n *Namespace) live(made chan<- error, enter func() error) {
	onSideThread(func() {
		defer close(n.dead)
		if err := n.settle(enter); err != nil {
			made <- err
			return
		}
		made <- nil
		for {
			select {
			case call := <-n.calls:
				call()
			case <-n.quit:
				return
			}
		}
	})
}

// onSideThread runs fn on a thread that ends with fn. The process's first thread cannot end: Go
// would park it for ever, in whatever namespace it is. So if this goroutine got that thread, it
// keeps it until a second goroutine has got another, on which that goroutine then runs fn.
func onSideThread(fn func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		fn()
		return
	}
	moved := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		close(moved)
		fn()
	}()
	<-moved
	runtime.UnlockOSThread()
	<-done
}

func (n *Namespace) settle(enter func() error) error {
	if err := enter(); err != nil {
		return fmt.Errorf("enter it: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// Without a sysfs of its own, /sys/class/net shows another namespace's devices. But nothing of
	// ours reads it, and some containers forbid the mount, so it is no error if the mount is refused.
	_ = unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		_ = f.Close()
		return fmt.Errorf("netlink: %w", err)
	}
	n.file, n.nl = f, nl
	return nil
}

func (n *Namespace) setUpLoopback() error {
	lo, err := n.nl.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	return n.nl.LinkSetUp(lo)
}

// Name is the name given to New.
func (n *Namespace) Name() string { return n.name }

// FD is the namespace's descriptor, valid until Close.
func (n *Namespace) FD() int { return int(n.file.Fd()) }

// Netlink returns a netlink handle whose socket is inside the namespace. It can be used on any thread until
// Close.
func (n *Namespace) Netlink() *netlink.Handle { return n.nl }

// Do runs fn on the namespace's own thread and returns its error. Calls run one at
// a time, so fn must not wait for long and must not call Do; sockets made in fn stay in
// the namespace and may be used outside it. A goroutine started in fn runs on another
// thread, outside the namespace.
func (n *Namespace) Do(fn func() error) error {
	result := make(chan error, 1)
	select {
	case n.calls <- func() { result <- fn() }:
		return <-result
	case <-n.dead:
		return fmt.Errorf("%s: %w", n.name, ErrClosed)
	}
}

// Dial connects from inside the namespace. The host in address has to be a literal, since names are not
// resolved. Dial runs on a thread of its own, so that a slow connection does not delay others.
func (n *Namespace) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := n.visit(func() (err error) {
		// With FallbackDelay < 0 the dialer starts no second goroutine, which would be outside of the namespace.
		d := net.Dialer{FallbackDelay: -1, KeepAlive: 15 * time.Second}
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// visit runs fn inside the namespace, on a new thread that ends afterwards. Several can run at a time.
func (n *Namespace) visit(fn func() error) error {
	result := make(chan error, 1)
	go onSideThread(func() { // waited for by the receive below
		err := n.enter()
		if err == nil {
			err = fn()
		}
		result <- err
	})
	return <-result
}

// enter moves the calling thread into the network namespace.
func (n *Namespace) enter() error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.closed {
		return fmt.Errorf("%s: %w", n.name, ErrClosed)
	}
	if err := unix.Setns(n.FD(), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter %s: %w", n.name, err)
	}
	return nil
}

// Start starts cmd in the namespace, in a process group of its own, so that a Ctrl-C
// at the terminal does not reach it. The kernel kills it when the namespace is closed or
// this process dies. Start adds to cmd.SysProcAttr, if that is set, and keeps the rest of it.
func (n *Namespace) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if !n.joined.Load() {
		// else Go takes a parent in another PID namespace for one that is dead, and sends the signal at once
		cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	}
	return n.Do(cmd.Start)
}

// Join moves the namespace's thread into the mount and UTS namespaces of the process with that id, and what
// is started from now on into its PID namespace as well, of which it has to be the first process. What is
// started so dies with that process.
func (n *Namespace) Join(pid int) error {
	kinds := []string{"mnt", "uts", "pid"}
	var files []*os.File
	for _, kind := range kinds { // all are opened first, since /proc is another one afterwards
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		if err != nil {
			return fmt.Errorf("%s: join process %d: %w", n.name, pid, err)
		}
		defer f.Close()
		files = append(files, f)
	}
	n.joined.Store(true)
	return n.Do(func() error {
		for i, f := range files {
			if err := unix.Setns(int(f.Fd()), 0); err != nil {
				return fmt.Errorf("%s: join the %s namespace of process %d: %w", n.name, kinds[i], pid, err)
			}
		}
		return nil
	})
}

// Run is Start and Wait.
func (n *Namespace) Run(cmd *exec.Cmd) error {
	if err := n.Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// Sysctl writes value to the namespace's /proc/sys entry key, such as net/ipv4/ip_forward.
func (n *Namespace) Sysctl(key, value string) error {
	return n.Do(func() error {
		// Which namespace the file belongs to is decided when it is opened: that of the thread that opens it.
		f, err := os.OpenFile(filepath.Join("/proc/sys", key), os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("sysctl in %s: %w", n.name, err)
		}
		defer f.Close()
		if _, err := f.WriteString(value); err != nil {
			return fmt.Errorf("sysctl in %s: %w", n.name, err)
		}
		return nil
	})
}

// Close ends the namespace's thread and the processes started from it, and gives up
// its descriptors. The kernel removes the namespace when the last socket in it is
// closed too. Close may be called again.
func (n *Namespace) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.closed = true
	close(n.quit)
	<-n.dead
	n.nl.Close()
	_ = n.file.Close()
}
