package holder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"weft/test/lab"
)

// errDown is the cause with which a holder's context ends when `weft lab down` asks for the end.
var errDown = errors.New("asked to end")

// server answers on a claim's socket. Until the lab is up and it is offered to the server, the server can only be
// told to end.
type server struct {
	end context.CancelCauseFunc

	mu  sync.Mutex
	lab *lab.Lab
}

func (s *server) offer(l *lab.Lab) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lab = l
}

func (s *server) offered() (*lab.Lab, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lab == nil {
		return nil, errors.New("the lab is not up yet")
	}
	return s.lab, nil
}

// serve accepts connections until the listener is closed, and then waits for them. A connection ends
// with its command, and at once when ctx ends.
func (s *server) serve(ctx context.Context, l *net.UnixListener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		wg.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			defer c.Close()
			s.answer(c)
		})
	}
}

func (s *server) answer(c *net.UnixConn) {
	var q request
	files, err := readPacket(c, &q)
	if err != nil {
		return
	}
	defer closeAll(files)
	var r reply
	switch q.Op {
	case opDown:
		s.end(errDown)
		return
	case opInfo:
		r.Info, err = s.info()
	case opExec:
		r, err = s.exec(c, q, files)
	case opSignal:
		err = errors.New("no command to signal")
	default:
		err = fmt.Errorf("unknown request %q", q.Op)
	}
	if err != nil {
		r.Error = err.Error()
	}
	_ = writePacket(c, r) // a client that is gone needs no answer
}

func (s *server) info() (*Info, error) {
	l, err := s.offered()
	if err != nil {
		return nil, err
	}
	return infoOf(l), nil
}

func infoOf(l *lab.Lab) *Info {
	i := &Info{Name: l.Spec.Name, Driver: l.Spec.Driver.String(), Wire: l.Spec.Wire.String(), Attach: l.Spec.Attach.String(), Rootless: l.Spec.Rootless, Dir: l.Spec.StateDir}
	for _, n := range l.Nodes() {
		node := NodeInfo{
			Name: n.Name, Underlay4: n.Underlay4, Underlay6: n.Underlay6,
			ControlSocket: n.ControlSocket, Log: n.Daemon.LogFile, TUN: n.Place.Name,
		}
		for _, p := range n.Pods {
			node.Pods = append(node.Pods, PodInfo{Name: p.Name, V4: p.V4, V6: p.V6})
		}
		i.Nodes = append(i.Nodes, node)
	}
	return i
}

// exec runs a command on a host with the client's descriptors, and returns when the command has ended. If
// the client goes away, the command is killed.
func (s *server) exec(c *net.UnixConn, q request, files []*os.File) (reply, error) {
	l, err := s.offered()
	if err != nil {
		return reply{}, err
	}
	host, err := l.Host(q.Host)
	if err != nil {
		return reply{}, err
	}
	if len(files) != 3 || len(q.Args) == 0 {
		return reply{}, errors.New("a command needs arguments and three descriptors")
	}
	cmd := &exec.Cmd{
		Path: q.Path, Args: q.Args, Dir: q.Dir, Env: append(q.Env, nodeEnv(l, q.Host)...),
		Stdin: files[0], Stdout: files[1], Stderr: files[2],
	}
	if err := host.NS.Start(cmd); err != nil {
		return reply{}, fmt.Errorf("%s: %w", q.Host, err)
	}
	ended, forwarded := make(chan struct{}), make(chan struct{})
	go func() { // ends when the connection's reading half does; waited for below
		defer close(forwarded)
		forward(c, cmd.Process.Pid, ended)
	}()
	err = cmd.Wait()
	close(ended)
	_ = c.CloseRead()
	<-forwarded
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return reply{}, err
	}
	r := reply{Status: cmd.ProcessState.ExitCode()}
	if ws, ok := cmd.ProcessState.Sys().(interface {
		Signaled() bool
		Signal() unix.Signal
	}); ok && ws.Signaled() {
		r.Signal = int(ws.Signal())
	}
	return r, nil
}

// forward sends the client's signals to the command's process group, and SIGKILL when the client is
// gone. Once the command has ended by itself, processes that it left in the background may stay.
func forward(c *net.UnixConn, pid int, ended <-chan struct{}) {
	for {
		var q request
		files, err := readPacket(c, &q)
		closeAll(files)
		select {
		case <-ended:
			return
		default:
		}
		if err != nil {
			_ = unix.Kill(-pid, unix.SIGKILL)
			return
		}
		if q.Op == opSignal && q.Signal > 0 {
			_ = unix.Kill(-pid, unix.Signal(q.Signal))
		}
	}
}

// nodeEnv tells commands on a node where its weftd is.
func nodeEnv(l *lab.Lab, host string) []string {
	for _, n := range l.Nodes() {
		if n.Name == host || strings.HasPrefix(host, n.Name+"-") {
			return []string{"WEFTD_CONTROL_SOCKET=" + n.ControlSocket, "WEFTD_SUBNET_FILE=" + n.SubnetFile, "WEFT_RESERVATIONS=" + n.Reservations()}
		}
	}
	return nil
}
