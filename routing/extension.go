package routing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weft/lease"
	"weft/lease/redact"
	"weft/routing/internal/kernel"
)

// typeExtension is flannel's extension: the operator's commands make peers reachable.
const typeExtension = "extension"

func extensionType() Type {
	return Type{
		Name: typeExtension, Settings: func(lease.NetworkConfig, func(string) bool) settings {
			return new(extension)
		},
		Help: map[string]string{
			"PreStartupCommand":   "command before there is a lease; its output goes into the record",
			"PostStartupCommand":  "command once the lease is known",
			"ShutdownCommand":     "command at the stop",
			"SubnetAddCommand":    "command for each peer, also after a restart",
			"SubnetRemoveCommand": "command for each peer that goes",
		},
	}
}

// extension leaves it to commands of the operator's to make peers reachable, and wants nothing of the kernel
// itself. Each command is split at white space, and $NAME or ${NAME} in a word stands for a variable of its
// environment; there is no shell, and no value is ever split or expanded again.
type extension struct {
	// PreStartupCommand runs before there is a lease. The lease record carries its output as BackendData.
	PreStartupCommand string
	// PostStartupCommand runs once the lease is known, with NETWORK, SUBNET, IPV6NETWORK, IPV6SUBNET,
	// PUBLIC_IP and PUBLIC_IPV6.
	PostStartupCommand string
	// SubnetAddCommand and SubnetRemoveCommand run for a peer, with SUBNET, IPV6SUBNET, PUBLIC_IP and
	// PUBLIC_IPV6; their standard input is what the peer's PreStartup printed. SubnetAdd runs again
	// after a restart, so it has to cope with what it made before.
	SubnetAddCommand, SubnetRemoveCommand string
	// ShutdownCommand runs when the daemon is asked to stop, with the variables of PostStartup.
	ShutdownCommand string
	plain
	data string // what PreStartup printed
}

// Facts implements settings.
func (e *extension) Facts() Facts {
	return Facts{
		Carrier: CarrierOthers, record: typeExtension, path: PathCommand, last: true,
		Commands: []Command{
			{"PreStartupCommand", e.PreStartupCommand}, {"PostStartupCommand", e.PostStartupCommand},
			{"SubnetAddCommand", e.SubnetAddCommand}, {"SubnetRemoveCommand", e.SubnetRemoveCommand},
			{"ShutdownCommand", e.ShutdownCommand},
		},
	}
}

// variables are the environment of a command, in addition to what is public of the daemon's own.
type variables [][2]string

func (v variables) environ() []string {
	var out []string
	for _, e := range v {
		out = append(out, e[0]+"="+e[1])
	}
	return out
}

// lookup finds a variable: one of v before one of the daemon's.
func (v variables) lookup(name string) string {
	for _, e := range v {
		if e[0] == name {
			return e[1]
		}
	}
	if secret(name) {
		return ""
	}
	return os.Getenv(name)
}

// public returns environ without variables that commands do not need and might pass on: above all the
// store's passwords, under flannel's names, ours and etcdctl's.
func public(environ []string) []string {
	var out []string
	for _, e := range environ {
		if name, _, _ := strings.Cut(e, "="); !secret(name) {
			out = append(out, e)
		}
	}
	return out
}

// secret reports whether a variable of that name holds a secret. etcdctl's user may have the password behind
// a colon.
func secret(name string) bool {
	return redact.Name(name) || strings.Contains(strings.ToUpper(name), "ETCDCTL_USER")
}

// splitCommand makes a command's words. A variable's value never becomes two words, and is not
// looked at again.
func splitCommand(command string, lookup func(string) string) []string {
	words := strings.Fields(command)
	for i, w := range words {
		words[i] = os.Expand(w, lookup)
	}
	return words
}

// recordVariables are those about a node's subnets and addresses. A family that it has not is empty.
func recordVariables(r lease.Record) variables {
	return variables{
		{"SUBNET", textOf(r.V4)}, {"IPV6SUBNET", textOf(r.V6)},
		{"PUBLIC_IP", textOf(r.PublicIP)}, {"PUBLIC_IPV6", textOf(r.PublicIPv6)},
	}
}

// nodeVariables are those about this node.
func nodeVariables(s situation) variables {
	own := s.set.Own
	own.PublicIP, own.PublicIPv6 = s.under.Ext4, s.under.Ext6
	return append(variables{{"NETWORK", textOf(s.set.Config.Network)},
		{"IPV6NETWORK", textOf(s.set.Config.IPv6Network)}}, recordVariables(own)...)
}

func textOf(x interface {
	IsValid() bool
	String() string
}) string {
	if !x.IsValid() {
		return ""
	}
	return x.String()
}

// extPeer is what SubnetAdd ran for. It is comparable, and what the state file keeps.
type extPeer struct {
	V4   netip.Prefix `json:",omitzero"`
	V6   netip.Prefix `json:",omitzero"`
	IP   netip.Addr   `json:",omitzero"`
	IPv6 netip.Addr   `json:",omitzero"`
	// Data is what the peer's PreStartup printed: anything.
	Data string `json:",omitempty"`
}

func (p extPeer) subnets() lease.Subnets { return lease.Subnets{V4: p.V4, V6: p.V6} }

func (p extPeer) variables() variables {
	return recordVariables(lease.Record{Subnets: p.subnets(),
		Attrs: lease.Attrs{PublicIP: p.IP, PublicIPv6: p.IPv6}})
}

// newExtPeer converts a record, or says why it is not used. BackendData is a JSON string or absent.
func newExtPeer(r lease.Record) (extPeer, string) {
	p := extPeer{V4: r.V4, V6: r.V6, IP: r.PublicIP, IPv6: r.PublicIPv6}
	if why := foreign(r, typeExtension); why != "" {
		return p, why
	}
	if given(r.BackendData) {
		if err := json.Unmarshal(r.BackendData, &p.Data); err != nil {
			return p, fmt.Sprintf("its BackendData is %s, which is no text", shorten(r.BackendData))
		}
	}
	return p, ""
}

func (e *extension) publish() (data, v6data json.RawMessage) {
	if e.PreStartupCommand == "" {
		return nil, nil
	}
	data, _ = json.Marshal(e.data) // a string is always JSON
	return data, nil
}

func (e *extension) want(s situation) desired {
	d := desired{ways: s.ways(typeExtension)}
	for w := range d.used() {
		w.How = HowCommand
		if _, why := newExtPeer(*w.r); why != "" {
			w.skip("%s", why)
		}
	}
	return d
}

// extTimeout bounds one command, and extStopTimeout the one at the end.
const (
	extTimeout     = time.Minute
	extStopTimeout = 10 * time.Second
)

// maxOutput is how much of a command's output is kept, in bytes.
const maxOutput = 64 << 10

// extRunner runs the commands, and remembers which ran for which peer, also across restarts.
type extRunner struct {
	idle
	o    *extension
	k    *kernel.Kernel
	log  *slog.Logger
	file stateFile

	post string    // the variables that PostStartup succeeded with; "" before
	last variables // those, for Shutdown
	// added are those that SubnetAdd has succeeded for, in this process. ran are all of which something may be
	// there: SubnetAdd may have failed for them, or an earlier process ran it since this host booted.
	added map[lease.Subnets]extPeer
	ran   []extPeer
}

// ErrCommandsRefused says that a network config of type extension is not followed, since whoever
// wrote its commands would be root here.
var ErrCommandsRefused = errors.New("type extension: its commands are not run")

// ExtensionFile, in the state directory, says for which peers commands ran.
const ExtensionFile = "extension.json"

// open implements opener.
func (e *extension) open(ctx context.Context, c BackendConfig) (_ settings, _ driver, err error) {
	n := *e
	if c.MayRunCommands == nil {
		return nil, nil, ErrCommandsRefused
	}
	if err := c.MayRunCommands(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrCommandsRefused, err)
	}
	r := &extRunner{o: &n, k: c.Kernel, log: c.Logger, file: c.stateFile(ExtensionFile),
		added: map[lease.Subnets]extPeer{}}
	if err := r.load(); err != nil {
		c.Logger.Warn("what ran for whom is not known: commands for peers that left are not run", "reason", err)
	}
	if n.PreStartupCommand != "" {
		if n.data, err = r.run(ctx, extTimeout, "PreStartupCommand", n.PreStartupCommand, nil, ""); err != nil {
			return nil, nil, err
		}
	}
	return &n, r, nil
}

// sync implements driver. A peer that changed is removed and added, a new one is added, and those that are gone
// are removed last.
func (r *extRunner) sync(ctx context.Context, s situation, _ *desired) (out outcome) {
	if err := r.start(ctx, s); err != nil {
		return outcome{node: fmt.Errorf("%w: %w", errNotStarted, err)}
	}
	wanted, changed := map[lease.Subnets]bool{}, false
	for _, record := range s.set.Peers {
		p, why := newExtPeer(record)
		if why != "" {
			continue
		}
		if wanted[p.subnets()] = true; r.added[p.subnets()] == p {
			continue
		}
		changed = true
		for _, old := range r.ran {
			if old.subnets() != p.subnets() || old == p {
				continue
			}
			if err := r.peer(ctx, "SubnetRemoveCommand", r.o.SubnetRemoveCommand, old); err != nil {
				r.log.Warn("the old state of a peer that changed may be left", "error", err)
			}
		}
		r.forget(p)
		r.ran = append(r.ran, p)
		if err := r.peer(ctx, "SubnetAddCommand", r.o.SubnetAddCommand, p); err != nil {
			out.peers = append(out.peers, peerFault{subnets: p.subnets(), err: err})
			continue
		}
		r.added[p.subnets()] = p
	}
	for _, p := range slices.Clone(r.ran) {
		if wanted[p.subnets()] {
			continue
		}
		changed = true
		if err := r.peer(ctx, "SubnetRemoveCommand", r.o.SubnetRemoveCommand, p); err != nil {
			out.peers = append(out.peers, peerFault{subnets: p.subnets(), err: err})
			continue
		}
		r.forget(p)
	}
	if changed {
		out.node = r.save()
	}
	return out
}

// forget drops what is known for p's subnets.
func (r *extRunner) forget(p extPeer) {
	delete(r.added, p.subnets())
	r.ran = slices.DeleteFunc(r.ran, func(x extPeer) bool { return x.subnets() == p.subnets() })
}

// start runs PostStartup when the node's own subnets or addresses are new.
func (r *extRunner) start(ctx context.Context, s situation) error {
	v := nodeVariables(s)
	now := strings.Join(v.environ(), "\n")
	if now == r.post {
		return nil
	}
	if _, err := r.run(ctx, extTimeout, "PostStartupCommand", r.o.PostStartupCommand, v, ""); err != nil {
		return err
	}
	r.post, r.last = now, v
	return nil
}

// close implements driver: it runs Shutdown, if PostStartup ran.
func (r *extRunner) close(ctx context.Context, ran bool) error {
	if r.post == "" || !ran {
		return nil
	}
	if _, err := r.run(ctx, extStopTimeout, "ShutdownCommand", r.o.ShutdownCommand, r.last, ""); err != nil {
		r.log.Warn("stop", "error", err)
	}
	return nil
}

func (r *extRunner) peer(ctx context.Context, key, command string, p extPeer) error {
	_, err := r.run(ctx, extTimeout, key, command, p.variables(), p.Data)
	return err
}

// run runs one command, if there is one, in the kernel's namespace, and returns its trimmed output.
func (r *extRunner) run(ctx context.Context, limit time.Duration, key, command string, v variables,
	stdin string) (string, error) {
	words := splitCommand(command, v.lookup)
	if len(words) == 0 {
		return "", nil
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(public(os.Environ()), v.environ()...)
	cmd.Stdin = strings.NewReader(stdin + "\n")
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) } // its children too
	cmd.WaitDelay = time.Second
	var out cappedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	err := r.k.Do(cmd.Run)
	text := strings.TrimSpace(out.String())
	if err != nil {
		switch {
		case parent.Err() != nil:
			err = fmt.Errorf("killed after %s, because weftd does not need it any more: %w",
				time.Since(start).Round(time.Millisecond), parent.Err())
		case ctx.Err() != nil:
			err = fmt.Errorf("killed, because it did not end within %s", limit)
		}
		return "", fmt.Errorf("%s %q: %w: %s", key, words, err, shorten([]byte(text)))
	}
	r.log.Debug("command", "key", key, "words", words, "took", time.Since(start))
	return text, nil
}

// cappedBuffer keeps the first maxOutput bytes.
type cappedBuffer struct{ bytes.Buffer }

func (b *cappedBuffer) Write(p []byte) (int, error) {
	if room := maxOutput - b.Len(); room > 0 {
		_, _ = b.Buffer.Write(p[:min(room, len(p))]) // a Buffer takes everything
	}
	return len(p), nil
}

// extState is the state file. An earlier boot's devices are gone with it.
type extState struct {
	Boot  string
	Peers []extPeer
}

func (r *extRunner) load() error {
	var s extState
	err := r.file.load(&s)
	if s.Boot == bootID() {
		r.ran = s.Peers
	}
	return err
}

// save writes what may have to be undone.
func (r *extRunner) save() error {
	return r.file.save(extState{Boot: bootID(), Peers: r.ran})
}

// bootID returns an id that changes with each boot (random(4)).
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}
