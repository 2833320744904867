package talk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
)

// Talker is a running talker, as the test that started it has it. One goroutine at a time may ask it.
type Talker struct {
	Identity
	// Name is for messages.
	Name string

	in   io.WriteCloser
	out  *json.Decoder
	said *tail
	cmd  *exec.Cmd
}

// Start starts a command that executes a talker, with start, and reads who it is.
func Start(name string, cmd *exec.Cmd, start func(*exec.Cmd) error) (*Talker, error) {
	k := &Talker{Name: name, cmd: cmd, said: &tail{}}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = k.said
	if err := start(cmd); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	k.in, k.out = in, json.NewDecoder(out)
	if err := k.out.Decode(&k.Identity); err != nil {
		_ = in.Close()
		return nil, fmt.Errorf("%s: %v: %w: %s", name, cmd.Args, errors.Join(err, cmd.Wait()), k.said)
	}
	return k, nil
}

// Ask asks for one thing, and waits for the reply. Its faults are the error.
func (k *Talker) Ask(r Request) (reply Reply, err error) {
	if err := json.NewEncoder(k.in).Encode(r); err != nil {
		return reply, fmt.Errorf("%s: %w: %s", k.Name, err, k.said)
	}
	if err := k.out.Decode(&reply); err != nil {
		return reply, fmt.Errorf("%s: %w: %s", k.Name, err, k.said)
	}
	if len(reply.Faults) > 0 {
		return reply, fmt.Errorf("%s: %q", k.Name, reply.Faults)
	}
	return reply, nil
}

// Close ends the talker, and waits for that.
func (k *Talker) Close() {
	_ = k.in.Close()
	_ = k.cmd.Wait()
}

// tail keeps what a process says on its standard error.
type tail struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b.Len() > 64<<10 {
		t.b.Reset()
	}
	return t.b.Write(p)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}
