package routing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weft/lease/atomicfile"
	"weft/routing/internal/kernel"
)

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
	file string // "" keeps nothing

	post  string    // the variables that PostStartup succeeded with; "" before
	last  variables // those, for Shutdown
	added []extPeer // SubnetAdd has succeeded for, in this process
	// doubtful are peers of which something may be left: SubnetAdd failed for them, or an
	// earlier process ran it since this host booted.
	doubtful []extPeer
}

// ErrCommandsRefused says that a network config of type extension is not followed, since whoever
// wrote its commands would be root here.
var ErrCommandsRefused = errors.New("type extension: its commands are not run")

// ExtensionFile, in the state directory, says for which peers commands ran. While it is replaced, the next one has
// ".new" at its end.
const ExtensionFile = "extension.json"

// Open implements settings.
func (s *extension) Open(ctx context.Context, c BackendConfig) (*Node, error) {
	e := *s
	if c.MayRunCommands == nil {
		return nil, ErrCommandsRefused
	}
	if err := c.MayRunCommands(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCommandsRefused, err)
	}
	r := &extRunner{o: &e, k: c.Kernel, log: c.Logger}
	if c.StateDir != "" {
		r.file = filepath.Join(c.StateDir, ExtensionFile)
	}
	if err := r.load(); err != nil {
		c.Logger.Warn("what ran for whom is not known: commands for peers that left are not run", "reason", err)
	}
	if e.PreStartupCommand != "" {
		var err error
		if e.data, err = r.run(ctx, extTimeout, "PreStartupCommand", e.PreStartupCommand, nil, ""); err != nil {
			return nil, fmt.Errorf("%s backend: %w", typeExtension, err)
		}
	}
	return newNode(c, &e, r)
}

// sync implements driver.
func (r *extRunner) sync(ctx context.Context, s situation, _ *desired) outcome {
	var out outcome
	if err := r.start(ctx, s); err != nil {
		return outcome{node: fmt.Errorf("%w: %w", errNotStarted, err)}
	}
	var want []extPeer
	for _, record := range s.set.Peers {
		if p, why := newExtPeer(record); why == "" {
			want = append(want, p)
		}
	}
	change, remove := extPlan(r.added, want)
	for _, c := range change {
		for _, old := range r.before(c) {
			if err := r.peer(ctx, "SubnetRemoveCommand", r.o.SubnetRemoveCommand, old); err != nil {
				r.log.Warn("the old state of a peer that changed may be left", "error", err)
			}
		}
		r.added, r.doubtful = dropPeer(r.added, c.add), dropPeer(r.doubtful, c.add)
		if err := r.peer(ctx, "SubnetAddCommand", r.o.SubnetAddCommand, c.add); err != nil {
			out.peers = append(out.peers, peerFault{subnets: c.add.subnets(), err: err})
			r.doubtful = append(r.doubtful, c.add)
			continue
		}
		r.added = append(r.added, c.add)
	}
	_, more := extPlan(r.doubtful, want)
	for _, p := range append(remove, more...) {
		if err := r.peer(ctx, "SubnetRemoveCommand", r.o.SubnetRemoveCommand, p); err != nil {
			out.peers = append(out.peers, peerFault{subnets: p.subnets(), err: err})
			continue
		}
		r.added, r.doubtful = dropPeer(r.added, p), dropPeer(r.doubtful, p)
	}
	if len(change)+len(remove)+len(more) > 0 {
		out.node = r.save()
	}
	return out
}

// before returns the forms in which a peer that changed may have been added.
func (r *extRunner) before(c extChange) []extPeer {
	var out []extPeer
	if c.old != nil {
		out = append(out, *c.old)
	}
	for _, p := range r.doubtful {
		if p.subnets() == c.add.subnets() && p != c.add {
			out = append(out, p)
		}
	}
	return out
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
func (r *extRunner) run(ctx context.Context, limit time.Duration, key, command string, v variables, stdin string) (string, error) {
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
			err = fmt.Errorf("killed after %s, because weftd does not need it any more: %w", time.Since(start).Round(time.Millisecond), parent.Err())
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

// dropPeer returns l without the entries for p's subnets.
func dropPeer(l []extPeer, p extPeer) []extPeer {
	var out []extPeer
	for _, x := range l {
		if x.subnets() != p.subnets() {
			out = append(out, x)
		}
	}
	return out
}

// extState is the state file. What an earlier boot made is gone with it.
type extState struct {
	Boot  string
	Peers []extPeer
}

func (r *extRunner) load() error {
	if r.file == "" {
		return nil
	}
	b, err := os.ReadFile(r.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var s extState
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("%s: %w", r.file, err)
	}
	if s.Boot == bootID() {
		r.doubtful = s.Peers
	}
	return nil
}

// save writes what may have to be undone.
func (r *extRunner) save() error {
	if r.file == "" {
		return nil
	}
	b, err := json.Marshal(extState{Boot: bootID(), Peers: append(append([]extPeer{}, r.added...), r.doubtful...)})
	if err != nil {
		return err
	}
	return kernel.Wrap("note what ran", atomicfile.Write(r.file, b))
}

// bootID returns an id that changes with each boot (random(4)).
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}
