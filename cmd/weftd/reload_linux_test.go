package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/test/await"
)

// hangup sends SIGHUP, and waits until the log has one line more that says so.
func (h *host) hangup(t *testing.T) {
	t.Helper()
	before := strings.Count(h.log.String(), "msg=reloading")
	if err := h.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await.OK(t, h.name+" reloads", func() error {
		if n := strings.Count(h.log.String(), "msg=reloading"); n <= before {
			return fmt.Errorf("%d reloads, as before", n)
		}
		return nil
	})
}

// reload asks for one, and returns its answer in lines.
func (h *host) reload(t *testing.T) (changed, restart, faults, notes string) {
	t.Helper()
	r, err := control.NewClient(h.socket()).Reload(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lines := func(l []control.ReloadChange) string {
		var out []string
		for _, c := range l {
			out = append(out, c.Text()+": "+c.Detail)
		}
		return strings.Join(out, "\n")
	}
	return lines(r.Changed), lines(r.Restart), strings.Join(r.Faults, "\n"), strings.Join(r.Notes, "\n")
}

// logs waits until the log has what is wanted, which passes through a pipe.
func (h *host) logs(t *testing.T, want string) {
	t.Helper()
	await.OK(t, h.name+" logs "+want, func() error {
		if !strings.Contains(h.log.String(), want) {
			return fmt.Errorf("it does not")
		}
		return nil
	})
}

// TestReload: SIGHUP ends weftd in no phase, and weft reload takes up what can be taken up.
func TestReload(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	b.args = b.args[:len(b.args)-1] // without the endpoints
	env := filepath.Join(b.dir, "weftd.env")
	write := func(lines ...string) {
		t.Helper()
		if err := os.WriteFile(env, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const good, nobody = "WEFTD_ETCD_ENDPOINTS=http://192.0.2.1:2379", "WEFTD_ETCD_ENDPOINTS=http://192.0.2.1:9"
	write(nobody)
	b.start(t, "--environment-file", env)
	await.OK(t, "b waits for etcd", func() error {
		s, err := b.status(t)
		if err == nil && !slices.Contains(s.NotReadyCodes, control.Waiting) {
			err = fmt.Errorf("%q", s.NotReady)
		}
		return err
	})
	pid := b.cmd.Process.Pid
	b.hangup(t)
	a.start(t)
	await.OK(t, "a begins", func() error {
		// a program that has just been executed has not said yet what the signal is to do
		if a.log.String() == "" {
			return fmt.Errorf("it has logged nothing")
		}
		return nil
	})
	a.hangup(t) // while it starts
	write(good)
	b.hangup(t)
	b.awaitReady(t)
	a.awaitReady(t)
	a.reaches(t, b)

	if changed, restart, faults, notes := b.reload(t); changed+restart+faults != "" ||
		!strings.Contains(notes, "/coreos.com/network/config") {
		t.Errorf("nothing has changed: %q %q %q %q", changed, restart, faults, notes)
	}
	write(good, "WEFTD_V=1", "WEFTD_IP_MASQ=true")
	changed, restart, faults, _ := b.reload(t)
	if changed != "--v changed from 0 to 1: " ||
		restart !=
			"--ip-masq changed from false to true: takes a restart: weft upgrade, or systemctl restart weftd" ||
		faults != "" {
		t.Errorf("%q %q %q", changed, restart, faults)
	}
	b.logs(t, `change="--ip-masq`)
	b.logs(t, "level=DEBUG")
	write(good, "WEFTD_V=1", "WEFTD_IP_MASQ=true", "WEFTD_LOG_FORMAT=xml", "WEFTD_IPTABLES_RESYNC=many")
	changed, restart, faults, notes := b.reload(t)
	if changed+restart != "" || !strings.Contains(faults, `--log-format is "xml"`) ||
		!strings.Contains(faults, "WEFTD_IPTABLES_RESYNC") || !strings.Contains(notes, "changed") {
		t.Errorf("%q %q %q %q", changed, restart, faults, notes)
	}
	write(nobody)
	if _, _, faults, _ := b.reload(t); !strings.Contains(faults, "store") ||
		!strings.Contains(faults, "listens") {
		t.Errorf("endpoints where nobody is: %q", faults)
	}
	write("WEFTD_LOG_FORMAT=json")
	if changed, _, faults, _ := b.reload(t); !strings.Contains(changed,
		"--log-format changed from text to json") || !strings.Contains(faults, "store") {
		t.Errorf("%q %q", changed, faults)
	}
	b.logs(t, "log-format")
	b.reaches(t, a)
	if s := b.awaitReady(t); s.PID != pid {
		t.Errorf("pid %d, was %d", s.PID, pid)
	}
	// At an upgrade, too: neither the program that executes another one nor that one ends.
	write(good)
	var upgraded atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !upgraded.Load() {
			_ = b.cmd.Process.Signal(syscall.SIGHUP) // it is there, or the upgrade says that it is not
			time.Sleep(time.Millisecond)
		}
	})
	_, err := b.upgrade(t, "weftd")
	upgraded.Store(true)
	wg.Wait()
	if s := b.awaitReady(t); err != nil || s.PID != pid {
		t.Errorf("an upgrade amid SIGHUP: %v, pid %d, was %d", err, s.PID, pid)
	}
	// And at the stop.
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if b.cmd.Process.Signal(syscall.SIGHUP) != nil {
			break
		}
	}
	if err := b.cmd.Wait(); err != nil {
		t.Errorf("SIGHUP at the stop: %v", err)
	}
	b.cmd = nil
}

// TestReloadSeesTheLastWrite: a reload right after a write to the store goes by that, and says its revision.
func TestReloadSeesTheLastWrite(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.start(t)
	b.start(t)
	b.awaitReady(t)
	c := a.client(t, "192.0.2.1:2379")
	missed := 0
	for i := range 50 {
		config, faults := `{"Network":"10.42.0.0/16","Backend":{"Type":"udp"}}`, 0
		if i%2 == 0 {
			config, faults = `{"Network":"10.42.0.0/16","Backend":{"Type":"udp","Port":"many"}}`, 1
		}
		written, err := c.Put(t.Context(), "/coreos.com/network/config", config)
		if err != nil {
			t.Fatal(err)
		}
		r, err := control.NewClient(b.socket()).Reload(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Changed)+len(r.Restart) > 0 || len(r.Faults) != faults || r.Revision < written.Header.Revision {
			t.Logf("written at %d: %+v", written.Header.Revision, r)
			missed++
		}
	}
	if missed > 0 {
		t.Errorf("%d of 50 reloads missed the write before them", missed)
	}
}

// TestReloadTakesUpAFile: another network configuration in the file of a cluster's nodes is in use after a
// reload, unless pods would lose their addresses by it, or it has a fault.
func TestReloadTakesUpAFile(t *testing.T) {
	t.Parallel()
	a, b, _ := cluster(t, udpConf)
	a.start(t)
	b.start(t)
	for _, h := range []*host{a, b} {
		h.awaitReady(t)
		before := h.cmd.Process.Pid
		if _, _, faults, notes := h.reload(t); faults != "" ||
			!strings.Contains(notes, "that of "+h.netconf()+" is the one in use") {
			t.Errorf("%q %q", faults, notes)
		}
		for text, why := range map[string]string{
			`{"Network":"10.43.0.0/16","Backend":{"Type":"udp"}}`:               "--renumber",
			`{"Network":"10.42.0.0/16","Backend":{"Type":"udp","Port":"many"}}`: "many",
		} {
			h.write(t, text)
			if changed, _, faults, _ := h.reload(t); changed != "" || !strings.Contains(faults, why) ||
				!strings.Contains(faults, "stays") {
				t.Errorf("%s: %q %q", text, changed, faults)
			}
		}
		h.write(t, `{"Network":"10.42.0.0/16","Backend":{"Type":"udp","Port":8300}}`)
		if changed, restart, faults, _ := h.reload(t); !strings.Contains(changed, "8300") || restart+faults != "" {
			t.Errorf("%q %q %q", changed, restart, faults)
		}
		if s := h.awaitReady(t); s.Backend.Port != 8300 || s.PID != before || s.Config.Differs {
			t.Errorf("%+v", s)
		}
	}
	a.reaches(t, b)
	b.reaches(t, a)
}
