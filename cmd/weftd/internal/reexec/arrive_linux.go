package reexec

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/rights"
)

// Arrival is what the program before left to this one. Its methods are safe for concurrent use; those of nil,
// which stands for an ordinary start, do nothing.
type Arrival struct {
	x     index
	env   []string
	alive chan struct{} // closed by Alive

	mu      sync.Mutex // protects what follows, and is held while Back goes back
	settled bool
}

// Arrive returns what the program before left, nil for an ordinary start. It comes first of all: it keeps
// descriptors from programs that this one starts, and waits for the children of the program before.
func Arrive() (*Arrival, error) {
	number := os.Getenv(variable)
	if number == "" {
		return nil, nil
	}
	if err := os.Unsetenv(variable); err != nil {
		return nil, err
	}
	a := &Arrival{env: os.Environ(), alive: make(chan struct{})}
	fd, err := strconv.Atoi(number)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("variable %s=%s is not for people to set: unset it", variable, number)
	}
	f := os.NewFile(uintptr(fd), "index")
	defer func() { _ = f.Close() }() // it has been read
	a.x, err = read(f)
	err = errors.Join(err, setFlags(a.x.all(), unix.FD_CLOEXEC))
	reap()
	return a, err
}

// reap waits for the children of the program before, which no package of this one knows. Some end with it.
func reap() {
	lists, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, task := range lists {
		b, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		if err != nil {
			continue // a kernel without CONFIG_PROC_CHILDREN: they stay as zombies
		}
		for _, word := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(word); err == nil {
				go func() { // ends with the child
					for {
						if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
							return
						}
					}
				}()
			}
		}
	}
}

// Fault says why the program that was executed went back to this one; "" if this one is it.
func (a *Arrival) Fault() string {
	if a == nil {
		return ""
	}
	return a.x.Fault
}

// Pending reports whether Back would go back.
func (a *Arrival) Pending() bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.settled && a.x.Before.FD > 0
}

// State returns what was left, with duplicates of the descriptors.
func (a *Arrival) State() (State, error) { return a.x.duplicate() }

// Settle says that this program has begun to read, or to make ports anew: it goes back no more.
func (a *Arrival) Settle() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled {
		return
	}
	a.settled = true
	rights.Close(a.x.kept())
	if a.x.Before.FD > 0 {
		_ = unix.Close(a.x.Before.FD) // nothing was written
	}
}

// Back executes the program before because of why. It returns if there is none, or if it is too late for
// that.
func (a *Arrival) Back(why error) error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled || a.x.Before.FD <= 0 {
		return nil
	}
	x := a.x
	x.Format, x.Fault, x.Before = Format, why.Error(), before{}
	return x.execute(fmt.Sprint("/proc/self/fd/", a.x.Before.FD), a.x.Before.Args, environment(a.env))
}

// StartPatience is how long a program may take until Alive, and Patience until Settle. What comes before
// Alive waits for nobody, and takes a few hundredths of a second of one processor. With 20 programs a
// processor that was about a second.
const (
	StartPatience = 3 * time.Second
	Patience      = 10 * time.Second
)

// Alive says that the program has its settings and its rights: from now on it does what may take time. It is
// called once.
func (a *Arrival) Alive() {
	if a != nil {
		close(a.alive)
	}
}

// Watch goes back if this program is not alive, or has not settled, in time.
func (a *Arrival) Watch() {
	if a == nil || a.x.Before.FD <= 0 {
		return
	}
	time.AfterFunc(StartPatience, func() {
		select {
		case <-a.alive:
		default:
			_ = a.Back(fmt.Errorf("it had not begun to work within %v", StartPatience)) // as below
		}
	})
	time.AfterFunc(Patience, func() {
		_ = a.Back(fmt.Errorf("it carried no packet within %v", Patience)) // with an error it goes on as it can
	})
}
