package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"weft/cmd/internal/socket"
)

// Upgrader gives way to another program.
type Upgrader interface {
	// Upgrade checks a program, and returns what begin does: it has this process execute the program. Its error
	// is as that of Release.
	Upgrade(ctx context.Context, r UpgradeRequest) (u Upgrade, begin func(), err error)
	// LastUpgrade returns the upgrade that was asked for last, of this process or of the program that it ran
	// before.
	LastUpgrade() Upgrade
	// MayYield returns nil if the weftd that asks may take this one's place, else what to tell it.
	MayYield(r YieldRequest) error
	// Yield stops what this weftd does. Then it keeps its descriptors for the other one, and calls answer.
	Yield(answer func())
}

// UpgradeRequest asks for another program.
type UpgradeRequest struct {
	// Binary is the program, by an absolute path; "" is the one that is at weftd's own path now.
	Binary string `json:"binary,omitempty"`
}

// Upgrade is one upgrade. It is over once Done is set, or Fault.
type Upgrade struct {
	// ID tells it from others; "" for none.
	ID string `json:"id"`
	// Done says that the new program carries packets. Fault says why the one before goes on.
	Done  bool   `json:"done"`
	Fault string `json:"fault,omitempty"`
	Upgraded
}

// Upgraded says how one program took another's place.
type Upgraded struct {
	Binary      string `json:"binary"`
	FromVersion string `json:"from_version"`
	ToVersion   string `json:"to_version"`
	FromPID     int    `json:"from_pid"`
	PID         int    `json:"pid"`
	// Pause is how long nobody read, in microseconds: packets waited in queues meanwhile. Took is the time of it
	// all, in milliseconds.
	Pause int64 `json:"pause_us"`
	Took  int64 `json:"took_ms"`
	// Ports are those of the data plane that were taken up, and Pods the pods that are attached directly.
	Ports int `json:"ports"`
	Pods  int `json:"pods"`
}

// YieldRequest is what a weftd says of itself that would take another's place.
type YieldRequest struct {
	// State names its state directory.
	State string `json:"state"`
	// Netns is the number of its network namespace, which is the inode of /proc/self/ns/net.
	Netns uint64 `json:"netns"`
}

// ErrReplaced says that another program is taking this one's place just now: to try again soon helps.
var ErrReplaced = errors.New("another weftd is taking this one's place just now: try again in a moment")

const (
	upgradePath = "/v1/upgrade"
	yieldPath   = "/v1/yield"
)

// upgradeTime bounds an upgrade, of which a program's answers are the longest part. yieldTime bounds a Yield.
const (
	upgradeTime = time.Minute
	yieldTime   = 30 * time.Second
)

func serveUpgrade(mux *http.ServeMux, n Upgrader) {
	mux.HandleFunc("GET "+upgradePath, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, n.LastUpgrade(), nil)
	})
	mux.HandleFunc("POST "+upgradePath, func(w http.ResponseWriter, r *http.Request) {
		var req UpgradeRequest
		if !changeRequest(w, r, &req) {
			return
		}
		// with less the answer is lost
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(upgradeTime + requestTimeout))
		ctx, cancel := context.WithTimeout(r.Context(), upgradeTime)
		defer cancel()
		u, begin, err := n.Upgrade(ctx, req)
		reply(w, u, err)
		if err == nil {
			_ = http.NewResponseController(w).Flush() // the client may be gone, which changes nothing
			begin()
		}
	})
	mux.HandleFunc("POST "+yieldPath, func(w http.ResponseWriter, r *http.Request) {
		var req YieldRequest
		if !changeRequest(w, r, &req) {
			return
		}
		if err := n.MayYield(req); err != nil {
			reply(w, nil, err)
			return
		}
		h, ok := w.(http.Hijacker)
		if !ok {
			return
		}
		conn, _, err := h.Hijack() // it outlives this server
		if err != nil {
			return // the client is gone
		}
		n.Yield(func() {
			_ = conn.SetWriteDeadline(time.Now().Add(requestTimeout))
			_, _ = conn.Write([]byte("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")) // its end says as much
			_ = conn.Close()
		})
	})
}

// AskYield asks the weftd behind the socket to give way, and returns when it has.
func AskYield(ctx context.Context, path string, r YieldRequest) error {
	return socket.Client{Path: path, Timeout: yieldTime}.Do(ctx, http.MethodPost, yieldPath, r, nil)
}

// pollEvery is the time between questions about an upgrade that is under way.
const pollEvery = 50 * time.Millisecond

// Upgrade asks the daemon to execute r.Binary in its place, and waits until that carries packets. An error
// that wraps ErrRefused says that the daemon goes on as before.
func (c *Client) Upgrade(ctx context.Context, r UpgradeRequest) (Upgraded, error) {
	var u Upgrade
	long := socket.Client{Path: c.Path, Timeout: upgradeTime + requestTimeout}
	if err := long.Do(ctx, http.MethodPost, upgradePath, r, &u); err != nil {
		return Upgraded{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, upgradeTime)
	defer cancel()
	for tick := time.NewTicker(pollEvery); ; {
		select {
		case <-ctx.Done():
			return Upgraded{}, fmt.Errorf("weftd has executed %s, and does not say that it carries packets: see its "+
				"log", u.Binary)
		case <-tick.C:
		}
		var now Upgrade
		switch err := c.Do(ctx, http.MethodGet, upgradePath, nil, &now); {
		case err != nil: // the new program begins
		case now.ID != u.ID:
			return Upgraded{}, fmt.Errorf("weftd has executed %s, which ended, and was started again: see its log",
				u.Binary)
		case now.Fault != "":
			return Upgraded{}, socket.Remote(http.StatusConflict, now.Fault)
		case now.Done:
			return now.Upgraded, nil
		}
	}
}
