package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"weft/cmd/internal/custody"
	"weft/cmd/internal/podport"
	"weft/cmd/internal/rights"
	"weft/cmd/weftd/internal/pods"
)

// podKeeper has pods' TUNs in custody, each with the request by which it was attached.
type podKeeper struct {
	ctx context.Context // the daemon's, since pods know none
	c   *custody.Custody
	log *slog.Logger
}

var _ pods.Keeper = podKeeper{}

// keptPod is what is kept beside a TUN.
type keptPod struct {
	Version int             `json:"version"`
	Request podport.Request `json:"request"`
}

const keptPodVersion = 1

// podItem begins the names of pods' items.
const podItem = "pod "

// Keep implements pods.Keeper.
func (k podKeeper) Keep(r podport.Request, fds []int) error {
	meta, err := json.Marshal(keptPod{keptPodVersion, r})
	if err != nil {
		return fmt.Errorf("keep the TUN of %s: %w", r.Key, err)
	}
	name := podItem + r.Key.String()
	if err := k.c.Put(custody.Item{Name: name, Meta: meta, FDs: fds}); err != nil {
		return err
	}
	ctx, cancel := k.wait()
	defer cancel()
	return k.c.Wait(ctx, name)
}

// Forget implements pods.Keeper.
func (k podKeeper) Forget(key podport.Key) error {
	ctx, cancel := k.wait()
	defer cancel()
	_ = k.c.DropOne(ctx, podItem+key.String()) // the status says it, and it is tried again
	return nil
}

// wait bounds how long an attach or a detach waits for whoever keeps descriptors.
func (k podKeeper) wait() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(k.ctx, time.Second,
		errors.New("whoever keeps descriptors has not taken them yet"))
}

// Kept implements pods.Keeper. Entries that this weftd cannot use, such as a later version's, are forgotten.
func (k podKeeper) Kept() ([]pods.Kept, error) {
	items, away := k.c.Take(podItem)
	var out []pods.Kept
	for _, i := range items {
		p, err := readKeptPod(i)
		if err != nil {
			k.log.Warn("a descriptor that was kept is of no use to this weftd: if it is a pod's, that has to be "+
				"attached again", "name", i.Name, "reason", err)
			rights.Close(i.FDs)
			ctx, cancel := k.wait()
			_ = k.c.DropOne(ctx, i.Name) // as in Forget
			cancel()
			continue
		}
		out = append(out, p)
	}
	if len(items) > 0 {
		s := k.c.Status()
		k.log.Info("pods' interfaces were held while there was no weftd", "by", s.By, "pods", len(out),
			"away", away.Round(1e6).String(), "discarded_packets", s.Discarded)
	}
	return out, nil
}

func readKeptPod(i custody.Item) (pods.Kept, error) {
	if !strings.HasPrefix(i.Name, podItem) {
		return pods.Kept{}, fmt.Errorf("it is not called %s…", podItem)
	}
	var p keptPod
	if err := json.Unmarshal(i.Meta, &p); err != nil {
		return pods.Kept{}, err
	}
	if p.Version != keptPodVersion || len(i.FDs) < 1 || len(i.FDs) > 1+len(podport.Settings()) ||
		podItem+p.Request.Key.String() != i.Name {
		return pods.Kept{}, fmt.Errorf("version %d with %d descriptors, of %s", p.Version, len(i.FDs),
			p.Request.Key)
	}
	return pods.Kept{Request: p.Request, FDs: i.FDs}, nil
}
