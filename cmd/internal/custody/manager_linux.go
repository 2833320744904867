package custody

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/rights"
)

// manager is the descriptor store of the service manager that started us (sd_notify(3): FDSTORE, FDSTOREREMOVE, FDPOLL, BARRIER;
// sd_listen_fds(3)). It keeps no bytes beside a descriptor but a name, so an Item goes into it as a sealed memory file that says the
// rest, followed by its descriptors, each under a name of its own:
//
//	weft-<hash of the Item's name>-<turn>-<place>
//
// The turn is another one each time that the same Item is kept, so that the new one is there before the old one goes. Systemd keeps a descriptor once:
// of one that it has already it drops the duplicate, and with it the other name. So what is in the store keeps the name under which it got there, and
// the memory file says which those are. No two descriptors that are kept may be duplicates of one another.
type manager struct {
	socket string // NOTIFY_SOCKET
	most   int    // FileDescriptorStoreMax=; 0 if the manager keeps nothing
	turn   uint64
	stored map[string]stored // by the Item's name
	used   int
	alive  int // the memory file that says when weftd was last alive; -1 as long as it is not in the store
	same   func(a, b int) (bool, error)
}

const (
	storePrefix = "weft-"
	aliveName   = storePrefix + "alive"
	labelSuffix = "-0"
	// barrierWait bounds how long the manager may take to say that it has read what was sent.
	barrierWait = 5 * time.Second
)

// label is what the memory file of an Item says.
type label struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Turn    uint64 `json:"turn"`
	// At are the names of its descriptors in the store.
	At   []string `json:"at"`
	Meta []byte   `json:"meta"`
}

// labelVersion is raised when a label changes its meaning.
const labelVersion = 2

// openManager returns the store that env tells of, nil if there is none and nothing came from one, and what came. It takes over
// the descriptors that came and that are ours; those of others stay open. Systemd from 254 on says by FDSTORE how many descriptors
// it keeps; earlier ones do not say it, and the unit has to.
func openManager(env func(string) string) (m *manager, items []Item, away time.Duration, faults []error) {
	m = newManager(env("NOTIFY_SOCKET"))
	if n, err := strconv.Atoi(env("FDSTORE")); err == nil && m.socket != "" {
		m.most = max(n, 0)
	}
	items, away, faults = m.takeUp(inherited(env))
	if m.most == 0 && len(m.stored) == 0 {
		return nil, items, away, faults
	}
	return m, items, away, faults
}

func newManager(socket string) *manager {
	return &manager{socket: socket, stored: map[string]stored{}, alive: -1, same: rights.Same}
}

// CloseOnExec sees to it that no process that we start gets what the service manager handed over. It comes before the first of them.
func CloseOnExec(env func(string) string) {
	for fd := range handedOver(env) {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC) // it fails only for one that is not open
	}
}

// handedOver returns the names of the descriptors that the service manager handed over.
func handedOver(env func(string) string) map[int]string {
	if pid, err := strconv.Atoi(env("LISTEN_PID")); err != nil || pid != os.Getpid() {
		return nil
	}
	n, err := strconv.Atoi(env("LISTEN_FDS"))
	if err != nil || n <= 0 || n > 1<<20 {
		return nil
	}
	names := strings.Split(env("LISTEN_FDNAMES"), ":")
	fds := map[int]string{}
	for k := range min(n, len(names)) {
		fds[3+k] = names[k]
	}
	return fds
}

// inherited returns those that are ours, by name.
func inherited(env func(string) string) map[string][]int {
	fds := map[string][]int{}
	for fd, name := range handedOver(env) {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && strings.HasPrefix(name, storePrefix) {
			fds[name] = append(fds[name], fd)
		}
	}
	return fds
}

// takeUp makes items of what came. What is not whole, or of an earlier turn, was being replaced when weftd died, and leaves the store.
func (m *manager) takeUp(fds map[string][]int) (items []Item, away time.Duration, faults []error) {
	newest := map[string]label{}
	at := map[string]string{} // the label's name, by the Item's
	for name, of := range fds {
		m.used += len(of)
		if name == aliveName || !strings.HasSuffix(name, labelSuffix) {
			continue
		}
		l, err := readLabel(of[0])
		if err == nil && !complete(fds, l.At) {
			err = errors.New("it is not whole")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("what the service manager kept as %s: %w", name, err))
			continue
		}
		m.turn = max(m.turn, l.Turn)
		if before, ok := newest[l.Name]; !ok || l.Turn > before.Turn {
			newest[l.Name], at[l.Name] = l, name
		}
	}
	used := map[string]bool{}
	for name, l := range newest {
		s := stored{label: at[name], at: l.At}
		for _, name := range l.At {
			s.fds, fds[name] = append(s.fds, fds[name][0]), fds[name][1:]
		}
		for _, name := range s.names() {
			used[name] = true
		}
		m.stored[name] = s.dup()
		items = append(items, Item{Name: name, Meta: l.Meta, FDs: s.fds})
	}
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Name, b.Name) })
	if of := fds[aliveName]; len(of) > 0 {
		used[aliveName] = true
		m.alive, fds[aliveName] = of[0], of[1:]
		away = m.sinceAlive()
	}
	for name, of := range fds {
		rights.Close(of)
		if !used[name] {
			faults = append(faults, m.notify("FDSTOREREMOVE=1\nFDNAME="+name, nil))
			m.used -= len(of)
		}
	}
	return items, away, slices.DeleteFunc(faults, func(err error) bool { return err == nil })
}

// complete reports whether all names are there, each once.
func complete(fds map[string][]int, names []string) bool {
	for k, name := range names {
		if len(fds[name]) == 0 || slices.Contains(names[:k], name) {
			return false
		}
	}
	return true
}

// keep has the store keep i in the place of what has its name. Of two processes that keep the same Item the store has the one or the other, whenever this
// one dies; only where the kernel does not tell which descriptors are the same it has none for a moment.
func (m *manager) keep(i Item) error {
	at, ok := m.stored[i.Name].of(i.FDs, m.same)
	if !ok {
		m.drop(i.Name)
	}
	need := 1
	if m.alive < 0 {
		need++
	}
	m.turn++
	sum := sha256.Sum256([]byte(i.Name))
	start := storePrefix + hex.EncodeToString(sum[:16]) + "-" + strconv.FormatUint(m.turn, 10)
	fresh := map[string]int{}
	for k, fd := range i.FDs {
		if at[k] == "" {
			at[k] = start + "-" + strconv.Itoa(k+1)
			fresh[at[k]] = fd
		}
	}
	if need += len(fresh); m.used+need > m.most {
		return fmt.Errorf("keep descriptors of %q: the service manager keeps %d of at most %d, and %d more are needed: raise FileDescriptorStoreMax= (and FDSTORE) in weftd's unit", i.Name, m.used, m.most, need)
	}
	if err := m.store(i, start+labelSuffix, at, fresh); err != nil {
		return fmt.Errorf("keep descriptors of %q: %w", i.Name, err)
	}
	before := m.stored[i.Name]
	m.stored[i.Name] = stored{label: start + labelSuffix, at: at, fds: i.FDs}.dup()
	m.remove(slices.DeleteFunc(before.names(), func(name string) bool { return slices.Contains(at, name) }))
	rights.Close(before.fds)
	return nil
}

// store has the store keep i: what is fresh, by name, and the label, which says what is at which name.
func (m *manager) store(i Item, name string, at []string, fresh map[string]int) (err error) {
	if m.alive < 0 {
		if err := m.storeAlive(); err != nil {
			return err
		}
	}
	file, err := writeLabel(label{Version: labelVersion, Name: i.Name, Turn: m.turn, At: at, Meta: i.Meta})
	if err != nil {
		return err
	}
	defer rights.Close([]int{file})
	fresh = maps.Clone(fresh)
	fresh[name] = file
	var sent []string
	for name, fd := range fresh {
		if err = m.notify("FDSTORE=1\nFDPOLL=0\nFDNAME="+name, []int{fd}); err != nil {
			break
		}
		sent = append(sent, name)
	}
	m.used += len(sent)
	if err == nil {
		err = m.barrier()
	}
	if err != nil {
		m.remove(sent)
	}
	return err
}

func (m *manager) forget(name string) {
	m.drop(name)
	_ = m.barrier() // a socket that it still had would keep its port
}

// drop takes an Item out of the store.
func (m *manager) drop(name string) {
	s := m.stored[name]
	delete(m.stored, name)
	m.remove(s.names())
	rights.Close(s.fds)
}

// remove takes names out of the store. What the manager is not told it drops with the unit's end.
func (m *manager) remove(names []string) {
	for _, name := range names {
		_ = m.notify("FDSTOREREMOVE=1\nFDNAME="+name, nil)
	}
	m.used -= len(names)
}

// close closes what is ours of what is in the store.
func (m *manager) close() {
	for _, s := range m.stored {
		rights.Close(s.fds)
	}
	m.stored = map[string]stored{}
	if m.alive >= 0 {
		rights.Close([]int{m.alive})
		m.alive = -1
	}
}

// notify sends state and fds to the service manager.
func (m *manager) notify(state string, fds []int) error {
	if m.socket == "" {
		return errors.New("there is no NOTIFY_SOCKET")
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) // Go's connected one takes no descriptors
	if err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // a datagram was sent or not
	limit := unix.NsecToTimeval(barrierWait.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	for {
		switch err := unix.Sendmsg(fd, []byte(state), rights, &unix.SockaddrUnix{Name: m.socket}, unix.MSG_NOSIGNAL); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("tell the service manager at %s: %w", m.socket, err)
		default:
			return nil
		}
	}
}

// barrier returns when the manager has read all that was sent: it then closes the other end of a pipe.
func (m *manager) barrier() error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	err := m.notify("BARRIER=1", p[1:])
	_ = unix.Close(p[1]) // nothing is written to it
	r := os.NewFile(uintptr(p[0]), "barrier")
	defer func() { _ = r.Close() }() // nor to this end
	if err != nil {
		return err
	}
	for end := time.Now().Add(barrierWait); ; {
		left := time.Until(end)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p[0])}}, int(max(left, 0).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return fmt.Errorf("the service manager does not read what weftd tells it (%s)", m.socket)
		default:
			return nil
		}
	}
}

// writeLabel returns a sealed memory file that says l.
func writeLabel(l label) (int, error) {
	b, err := json.Marshal(l)
	if err != nil {
		return -1, err
	}
	fd, err := unix.MemfdCreate("weft-label", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("make a memory file: %w", err)
	}
	if _, err = unix.Pwrite(fd, b, 0); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		_ = unix.Close(fd) // it is of no use
		return -1, fmt.Errorf("write a memory file: %w", err)
	}
	return fd, nil
}

func readLabel(fd int) (l label, err error) {
	b := make([]byte, 2*MaxMeta+128*MaxFDs+4096) // base64, names, and what is around them
	n, err := unix.Pread(fd, b, 0)
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(b[:n], &l); err != nil {
		return l, err
	}
	if l.Version != labelVersion || l.Name == "" || len(l.Name) > MaxName || len(l.At) < 1 || len(l.At) > MaxFDs {
		return l, fmt.Errorf("version %d of what weft says of descriptors, which this weftd does not read", l.Version)
	}
	return l, nil
}
