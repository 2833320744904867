package holder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"weft/test/lab"
)

const (
	// if it is set, this process is a holder that writes its news to descriptor statusFD
	statusEnv = "WEFT_LAB_STATUS"
	statusFD  = 3
	logFile   = "holder.log"
)

// news is one line from a holder that is starting.
type news struct {
	Progress string `json:",omitempty"`
	Error    string `json:",omitempty"`
	Up       *Info  `json:",omitempty"`
}

// Launch starts this program again, with the same arguments, as the holder of the lab
// name, in a session of its own and, if asked, isolated. It passes the holder's progress on and
// returns when the lab is up. If ctx ends first, it tells the holder to end and waits for it.
func Launch(ctx context.Context, name string, isolated bool, progress func(string)) (*Info, error) {
	cmd, log, err := holderCommand(name, isolated)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd.ExtraFiles = []*os.File{w} // as statusFD
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		if isolated {
			err = explainRefusal(err)
		}
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(unix.SIGTERM) })
	defer stop()
	info, err := readNews(r, progress)
	if err == nil {
		return info, cmd.Process.Release() // the holder lives on, and nobody waits for it
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the holder ended without a word: see %s", log.Name())
	}
	_ = cmd.Wait() // its status says less than err does
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("interrupted: %w", cause)
	}
	return nil, err
}

func holderCommand(name string, isolated bool) (*exec.Cmd, *os.File, error) {
	c, err := claimName(name) // for the holder, which takes it then
	if err != nil {
		return nil, nil, err
	}
	defer c.lock.Close()
	cmd, err := self()
	if isolated {
		cmd, err = isolatedSelf()
	}
	if err != nil {
		return nil, nil, err
	}
	log, err := os.Create(filepath.Join(c.dir, logFile))
	if err != nil {
		return nil, nil, err
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	cmd.Env = append(cmd.Env, statusEnv+"=1")
	cmd.Stdout, cmd.Stderr = log, log
	return cmd, log, nil
}

func readNews(r io.Reader, progress func(string)) (*Info, error) {
	d := json.NewDecoder(r)
	for {
		var n news
		if err := d.Decode(&n); err != nil {
			return nil, err
		}
		switch {
		case n.Error != "":
			return nil, errors.New(n.Error)
		case n.Up != nil:
			return n.Up, nil
		default:
			progress(n.Progress)
		}
	}
}

// IsHolder says whether Launch started this process, which then has to call HoldLaunched.
func IsHolder() bool { return os.Getenv(statusEnv) != "" }

// HoldLaunched is Hold for a process that Launch started. It tells the launcher when the lab is up, then
// waits until ctx ends or `weft lab down` asks for the end. Options.Work is not used.
func HoldLaunched(ctx context.Context, o Options) error {
	pipe := os.NewFile(statusFD, "status")
	unix.CloseOnExec(statusFD)
	defer pipe.Close()
	tell := json.NewEncoder(pipe)
	o.Spec.Progress = func(line string) { _ = tell.Encode(news{Progress: line}) } // the launcher may be gone
	o.Work = func(ctx context.Context, l *lab.Lab) error {
		_ = tell.Encode(news{Up: infoOf(l)})
		_ = pipe.Close()
		<-ctx.Done()
		return nil
	}
	_, err := Hold(ctx, o)
	if err != nil {
		_ = tell.Encode(news{Error: lab.Explain(err)})
	}
	return err
}
