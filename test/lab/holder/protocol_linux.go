package holder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// op says what a request asks for.
type op string

const (
	opInfo   op = "info"
	opDown   op = "down"
	opExec   op = "exec"   // comes with three descriptors: stdin, stdout, stderr
	opSignal op = "signal" // is for the command of this connection
)

// request and reply are one packet each, in JSON, on a SOCK_SEQPACKET Unix socket.
type request struct {
	Op     op
	Host   string   `json:",omitempty"`
	Path   string   `json:",omitempty"`
	Args   []string `json:",omitempty"` // begin with the program's name
	Env    []string `json:",omitempty"`
	Dir    string   `json:",omitempty"`
	Signal int      `json:",omitempty"`
}

type reply struct {
	Error string `json:",omitempty"`
	// Status is the command's exit status; Signal, if not 0, is the signal that ended it.
	Status int   `json:",omitempty"`
	Signal int   `json:",omitempty"`
	Info   *Info `json:",omitempty"`
}

// Info describes a lab that is up.
type Info struct {
	Name   string `json:"name"`
	Driver string `json:"driver"`
	Wire   string `json:"wire"`
	Attach string `json:"attach"`
	// Rootless says that the nodes' weftds are without root.
	Rootless bool       `json:"rootless"`
	Dir      string     `json:"dir"`
	Nodes    []NodeInfo `json:"nodes"`
}

// NodeInfo is one node of a lab.
type NodeInfo struct {
	Name          string     `json:"name"`
	Underlay4     netip.Addr `json:"underlay4"`
	Underlay6     netip.Addr `json:"underlay6"`
	ControlSocket string     `json:"controlSocket"`
	Log           string     `json:"log"`
	// TUN is the host that the node's TUN is in: the node's own name, or that of its user's namespace.
	TUN  string    `json:"tun"`
	Pods []PodInfo `json:"pods"`
}

// PodInfo is one pod of a node. Its address is empty in a family that it does not have.
type PodInfo struct {
	Name string     `json:"name"`
	V4   netip.Addr `json:"v4"`
	V6   netip.Addr `json:"v6"`
}

const maxPacket = 128 << 10 // bytes of one request or reply; the socket's default buffer takes 208 KiB

func writePacket(c *net.UnixConn, v any, fds ...int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > maxPacket {
		return fmt.Errorf("%d bytes of arguments and environment, more than %d", len(b), maxPacket)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err = c.WriteMsgUnix(b, rights, nil)
	return err
}

// readPacket reads one packet and the descriptors with it, which are the caller's to close.
func readPacket(c *net.UnixConn, v any) ([]*os.File, error) {
	b, oob := make([]byte, maxPacket), make([]byte, unix.CmsgSpace(3*4))
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	files, err := receivedFiles(oob[:oobn])
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("packet too long")
	}
	if err == nil {
		err = json.Unmarshal(b[:n], v)
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	return files, nil
}

func receivedFiles(oob []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

func dial(dir string) (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: filepath.Join(dir, socketFile)})
}

// askInfo asks a holder what it holds.
func askInfo(dir string) (*Info, error) {
	c, err := dial(dir)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if err := writePacket(c, request{Op: opInfo}); err != nil {
		return nil, err
	}
	var r reply
	if _, err := readPacket(c, &r); err != nil {
		return nil, err
	}
	if r.Error != "" {
		return nil, errors.New(r.Error)
	}
	return r.Info, nil
}

// askDown asks a holder to end.
func askDown(dir string) error {
	c, err := dial(dir)
	if err != nil {
		return err
	}
	defer c.Close()
	return writePacket(c, request{Op: opDown})
}

// holderPID returns the id of the process that listens, as it is in this process's pid namespace. The
// kernel says so itself, even if that process is stopped and answers nobody.
func holderPID(dir string) (pid int, err error) {
	c, err := dial(dir)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	ctlErr := raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid, errors.Join(err, ctlErr)
}
