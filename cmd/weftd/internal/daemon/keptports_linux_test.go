package daemon

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/custody"
	"weft/cmd/internal/rights"
	"weft/test/await"
	"weft/tunnel/port"
)

// A backend does not wait, with its lock held, until a busy service manager has heard of its ports: that
// hears of them when it is ready.
func TestNoBackendWaitsForTheServiceManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = manager.Close() }()
	env := map[string]string{"NOTIFY_SOCKET": path, "FDSTORE": "20"}
	d := &Daemon{log: discard(), process: process{ctx: context.Background()}}
	d.custody = custody.Open(t.Context(), custody.Options{Owner: "x", Getenv: func(name string) string {
		return env[name]
	}, Logger: d.log})
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	k := &port.Kept{Kind: "tun", FDs: []int{fd}}
	d.keepPort("tun", k)
	d.keepPort("underlay4", k)
	d.keepPort("underlay4", nil)
	k.Close()   // they were borrowed
	go func() { // until the socket is closed
		b, oob := make([]byte, 4096), make([]byte, 4096)
		for {
			_, n, _, _, err := manager.ReadMsgUnix(b, oob)
			if err != nil {
				return
			}
			fds, _ := rights.Parse(oob[:n])
			rights.Close(fds) // which ends a barrier
		}
	}()
	await.OK(t, "one port is kept", func() error {
		if s := d.custody.Status(); s.By != custody.ByManager || s.Ports != 1 || s.Fault != "" {
			return errors.New("not yet: " + s.Fault)
		}
		return nil
	})
	d.closeCustody()
}
