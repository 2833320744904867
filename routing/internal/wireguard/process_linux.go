package wireguard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a device in user space as a process of its own has it, so that its sessions outlive the weftd that started it. It opens nothing:
// TUN and sockets come from weftd, so that they may lie in two namespaces, and the process needs no rights.
type Process struct {
	user    *User
	sockets *sockets
	about   Served

	mu sync.Mutex // one request that changes something at a time
}

// Served says what a device's process is.
type Served struct {
	// Device is the name of the TUN, and Version this program's.
	Device, Version string
	// Lacks says what the process could not give up of its rights; "" for nothing.
	Lacks string
}

// Serve is a device's process: it has the TUN fd, and answers whoever connects over line, both of which are its own from now on. It returns
// nil when the last duplicate of the line's other end is closed, when it is told to end, or when the TUN's device is gone, and ctx's error
// when that ends.
func Serve(ctx context.Context, about Served, line, fd int) error {
	listener, err := unixConn(line)
	if err != nil {
		closeAll([]int{fd})
		return fmt.Errorf("device %s: %w", about.Device, err)
	}
	defer listener.Close()
	s := &sockets{by: map[netip.AddrPort]*os.File{}}
	defer s.keep(nil)
	u, err := newUser(about.Device, fd, defaultMTU, newBind(s.open), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer u.Close()
	p := &Process{user: u, sockets: s, about: about}
	over := make(chan struct{})
	go func() { // ends with listener
		defer close(over)
		p.listen(listener)
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-over:
	case <-u.dev.Wait():
	}
	return nil
}

// defaultMTU counts until the first Configure.
const defaultMTU = 1420

// againTime is between two attempts to read from the line.
const againTime = 10 * time.Millisecond

// listen answers those that connect over the line, until it ends or says so.
func (p *Process) listen(line *net.UnixConn) {
	var wg sync.WaitGroup
	defer wg.Wait()
	var mu sync.Mutex
	streams := map[*net.UnixConn]bool{}
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		for c := range streams {
			_ = c.Close() // its reader removes it
		}
	}()
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4*mostSockets))
	for {
		n, rights, _, _, err := line.ReadMsgUnix(b, oob)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
			return
		case err != nil: // for want of memory: whoever keeps the line counts on this process
			time.Sleep(againTime)
			continue
		}
		fds, err := descriptors(oob[:rights])
		if err != nil || n != 1 || b[0] != lineConnect || len(fds) != 1 {
			closeAll(fds)
			if n == 1 && b[0] == lineEnd {
				return
			}
			continue
		}
		c, err := unixConn(fds[0])
		if err != nil {
			continue // who has the other end finds it closed
		}
		mu.Lock()
		streams[c] = true
		mu.Unlock()
		wg.Go(func() {
			p.serve(c)
			_ = c.Close()
			mu.Lock()
			defer mu.Unlock()
			delete(streams, c)
		})
	}
}

// serve answers one weftd until it is gone.
func (p *Process) serve(c *net.UnixConn) {
	for {
		var r request
		fds, err := readMessage(c, &r)
		if err != nil {
			closeAll(fds)
			return
		}
		a, err := p.answer(r, fds)
		if err != nil {
			a.Error = err.Error()
		}
		if writeMessage(c, a, nil) != nil {
			return
		}
	}
}

func (p *Process) answer(r request, fds []int) (a answer, err error) {
	if r.Verb != verbConfigure {
		closeAll(fds)
	}
	switch r.Verb {
	case verbAbout:
		return answer{Protocol: processProtocol, Version: p.about.Version, Lacks: p.about.Lacks, PID: os.Getpid(), Sockets: p.sockets.addresses(), WrongKeys: p.user.WrongKeys()}, nil
	case verbConfigure:
		a.Changed, err = p.configure(r, fds)
		return a, err
	case verbPeers:
		a.Peers, err = p.user.Peers()
		return a, err
	}
	return a, fmt.Errorf("verb %.20q is unknown", r.Verb)
}

func (p *Process) configure(r request, fds []int) (changed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Config == nil || len(fds) != len(r.Sockets) {
		closeAll(fds)
		return false, errMalformed
	}
	for i, fd := range fds {
		p.sockets.add(r.Sockets[i], fd)
	}
	c, err := r.Config.config()
	if err != nil {
		return false, err
	}
	greet := make(map[PublicKey]bool, len(r.Greet))
	for _, k := range r.Greet {
		greet[k] = true
	}
	changed, err = p.user.Configure(c, func(k PublicKey) bool { return greet[k] })
	if err == nil {
		p.sockets.keep(c.bound())
	}
	return changed, err
}

// bound is what the device's sockets are bound to.
func (c Config) bound() (all []netip.AddrPort) {
	for _, a := range []netip.Addr{c.Local4, c.Local6} {
		if a.IsValid() {
			all = append(all, netip.AddrPortFrom(a, c.Port))
		}
	}
	return all
}
