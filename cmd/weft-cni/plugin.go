package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"weft/cmd/internal/socket"
	"weft/cmd/weft-cni/internal/attach"
	"weft/cmd/weft-cni/internal/delegate"
	"weft/cmd/weft-cni/internal/netconf"
	"weft/lease/subnetenv"
)

// Package types has no names for these codes of the specification.
const errNotAvailable = 50 // STATUS: no ADD would succeed

// askTimeout bounds the question to weftd. A pod's start waits for it.
const askTimeout = 5 * time.Second

// plugin answers the runtime's commands. Each is a process of its own.
type plugin struct{ stdout, stderr io.Writer }

func (p plugin) funcs() skel.CNIFuncs {
	return skel.CNIFuncs{Add: p.add, Del: p.del, Check: p.check, GC: p.gc, Status: p.status}
}

// request is a command with its configuration.
type request struct {
	netconf.Config
	id       attach.ID
	call     delegate.Call
	dir      attach.Dir
	delegate *delegate.Caller
	stderr   io.Writer
}

func (p plugin) request(args *skel.CmdArgs) (request, error) {
	conf, err := netconf.Parse(args.StdinData)
	if err != nil {
		return request{}, types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
	}
	if conf.ControlSocket == "" {
		conf.ControlSocket = socket.Default
	}
	return request{
		Config: conf,
		id:     attach.ID{Container: args.ContainerID, Interface: args.IfName},
		call: delegate.Call{ContainerID: args.ContainerID, NetNS: args.Netns, IfName: args.IfName,
			Args: args.Args},
		dir:      attach.Dir(conf.DataDir),
		delegate: delegate.New(args.Path, p.stderr),
		stderr:   p.stderr,
	}, nil
}

// env reads subnet.env. If it cannot, the error has the given code, and its details say
// why there is no such file.
func (r request) env(ctx context.Context, code uint) (netconf.Env, error) {
	f, err := subnetenv.Read(r.SubnetFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return netconf.Env{}, types.NewError(code, "this node has no subnet yet: there is no "+r.SubnetFile,
			r.cause(ctx))
	case err != nil:
		return netconf.Env{}, types.NewError(code, "the node's subnet file cannot be used: "+err.Error(),
			r.cause(ctx))
	}
	return netconf.EnvOf(f), nil
}

// cause says why weftd has not written the subnet file yet.
func (r request) cause(ctx context.Context) string {
	s, err := askDaemon(ctx, r.ControlSocket, askTimeout)
	switch {
	case err != nil:
		return err.Error()
	case len(s.NotReady) > 0:
		return "weftd " + s.Version + " is running and waits: " + strings.Join(s.NotReady, "; ")
	case !s.Ready:
		return "weftd " + s.Version + " is running and not ready: see its log"
	}
	return "weftd " + s.Version + " is running and ready, so it writes another file: " +
		"compare its --subnet-file with subnetFile in the network configuration"
}

// daemonStatus is the part of the daemon's status that a pod's start depends on.
type daemonStatus struct {
	Version string `json:"version"`
	// Ready is what /readyz answers; NotReady are its reasons.
	Ready    bool     `json:"ready"`
	NotReady []string `json:"notReady"`
	Backend  backend  `json:"backend"`
}

// backend says how packets are carried: Type is its name in the network configuration, and Path is portable,
// socket or raw where weftd itself carries them.
type backend struct {
	Type string `json:"type"`
	Path string `json:"path"`
}

// askDaemon asks the weftd behind the socket. It takes no longer than timeout.
func askDaemon(ctx context.Context, path string, timeout time.Duration) (s daemonStatus, err error) {
	return s, socket.Client{Path: path, Timeout: timeout}.Do(ctx, http.MethodGet, "/v1/status", nil, &s)
}
