package wireguard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Remote is a device of a process of its own. It is safe for concurrent use.
type Remote struct {
	name  string
	away  Inside
	conn  *net.UnixConn
	about answer
	end   func() // ends the process

	answers chan answer
	over    chan struct{} // closed when nothing more comes
	closed  atomic.Bool

	mu sync.Mutex // one request at a time
}

// answerTime bounds how long a process takes to answer: with thousands of peers it is less than a second. What it says of itself takes nothing, and
// where it does not come in aboutTime, twice, the process is replaced.
const (
	answerTime = 15 * time.Second
	aboutTime  = 5 * time.Second
)

var (
	// errEnded is of a process that has ended, which its line or its descriptor says and nothing else.
	errEnded = errors.New("the device's process has ended")
	// errCut is of a connection that is over. The process may go on: one that is short of descriptors closes what it is given.
	errCut = errors.New("the device's process has let go of the connection")
	// errMute is of one that does not answer.
	errMute = errors.New("the device's process does not answer")
	// errForeign is of one that speaks another protocol.
	errForeign = errors.New("the device's process is of another version")
)

// connect connects to the process at the other end of line. lost, if not nil, is called when the connection ends by itself.
func connect(name string, line int, away Inside, lost func()) (*Remote, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	err = sendLine(line, lineConnect, pair[1])
	closeAll(pair[1:])
	if err != nil {
		closeAll(pair[:1])
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	c, err := unixConn(pair[0])
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	r := &Remote{name: name, away: away, conn: c, answers: make(chan answer, 1), over: make(chan struct{})}
	go r.read(lost) // ends with conn
	if r.about, err = r.ask(request{Verb: verbAbout}, nil); err == nil && r.about.Protocol != processProtocol {
		err = fmt.Errorf("device %s: %w: %s, protocol %d", name, errForeign, r.about.Version, r.about.Protocol)
	}
	if err != nil {
		_ = r.Close() // nothing was asked for
		return nil, err
	}
	return r, nil
}

// sendLine sends a packet over the line, with fd beside it unless that is negative. It does not block.
func sendLine(line int, packet byte, fd int) error {
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	switch err := unix.Sendmsg(line, []byte{packet}, oob, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT); {
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		return errEnded
	case errors.Is(err, unix.EAGAIN):
		return errMute
	default:
		return err
	}
}

func (r *Remote) read(lost func()) {
	for {
		var a answer
		fds, err := readMessage(r.conn, &a)
		closeAll(fds)
		if err != nil {
			break
		}
		select {
		case r.answers <- a:
		default: // nobody has asked
		}
	}
	close(r.over)
	_ = r.conn.Close() // it is over
	if !r.closed.Load() && lost != nil {
		lost()
	}
}

// ask sends a request, and waits for the answer.
func (r *Remote) ask(q request, fds []int) (answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return answer{}, os.ErrClosed
	}
	most := answerTime
	if q.Verb == verbAbout {
		most = aboutTime
	}
	deadline := time.Now().Add(most)
	if err := r.conn.SetWriteDeadline(deadline); err != nil {
		return answer{}, fmt.Errorf("device %s: %w", r.name, errCut)
	}
	err := writeMessage(r.conn, q, fds)
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	mute := errors.Is(err, os.ErrDeadlineExceeded)
	if !mute {
		select {
		case a := <-r.answers:
			if a.Error != "" {
				return a, fmt.Errorf("device %s: %s", r.name, a.Error)
			}
			return a, nil
		case <-r.over:
			return answer{}, fmt.Errorf("device %s: %w", r.name, errCut)
		case <-t.C:
		}
	}
	_ = r.conn.Close() // what it says later would be taken for another answer
	return answer{}, fmt.Errorf("device %s: %w within %v: it is replaced unless it answers when it is asked again (pgrep -af 'weftd wireguard' finds it)", r.name, errMute, most)
}

// Process is the number of the device's process, the version of its program, and what it could not give up of its rights.
func (r *Remote) Process() (pid int, version, lacks string) {
	return r.about.PID, r.about.Version, r.about.Lacks
}

// Configure implements what User.Configure does. Sockets that the process does not have are opened here. Peers' sessions last where nothing of
// theirs changes, whichever weftd said it before.
func (r *Remote) Configure(c Config, greet func(PublicKey) bool) (changed bool, err error) {
	now, err := r.ask(request{Verb: verbAbout}, nil)
	if err != nil {
		return false, err
	}
	q := request{Verb: verbConfigure, Config: wireOf(c)}
	var opened []*os.File
	var fds []int
	defer func() {
		for _, f := range opened {
			_ = f.Close() // the process has it, or nobody
		}
	}()
	for _, at := range c.bound() {
		if slices.Contains(now.Sockets, at) {
			continue
		}
		f, err := r.openSocket(at)
		if err != nil {
			return false, fmt.Errorf("device %s: UDP port %d: %w", r.name, at.Port(), err)
		}
		opened, fds, q.Sockets = append(opened, f), append(fds, int(f.Fd())), append(q.Sockets, at)
	}
	for _, p := range c.Peers {
		if greet(p.Key) {
			q.Greet = append(q.Greet, p.Key)
		}
	}
	a, err := r.ask(q, fds)
	return a.Changed, err
}

func (r *Remote) openSocket(at netip.AddrPort) (*os.File, error) {
	c, err := opensIn(r.away)(at, 0)
	if err != nil {
		return nil, err
	}
	f, err := c.File()
	return f, errors.Join(err, c.Close())
}

// Lost reports whether the process, or the connection to it, has ended by itself.
func (r *Remote) Lost() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// Peers is what the device knows of its peers, by key.
func (r *Remote) Peers() ([]PeerState, error) {
	a, err := r.ask(request{Verb: verbPeers}, nil)
	return a.Peers, err
}

// WrongKeys is how many handshakes came that were for another key than this device's.
func (r *Remote) WrongKeys() uint64 {
	a, _ := r.ask(request{Verb: verbAbout}, nil) // none is known of one that does not answer, which Peers says
	return a.WrongKeys
}

// Close lets go of the device, which goes on.
func (r *Remote) Close() error {
	r.closed.Store(true)
	_ = r.conn.Close() // again, if it was lost
	<-r.over
	return nil
}

// End ends the device, and with it all sessions. The TUN stays.
func (r *Remote) End() error {
	err := r.Close()
	r.end()
	return err
}
