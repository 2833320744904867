package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// eventNamespace is where Events about objects without a namespace are.
	eventNamespace = "default"
	component      = "weftd"

	// eventEvery and eventBurst bound how much we write. Further events of one reason meanwhile become one,
	// with a count.
	eventEvery = time.Minute
	eventBurst = 10
	// maxNotices bounds how many reasons wait to be told.
	maxNotices = 32
	// sameEvent is how long what is told again counts an Event up instead of making another. The API server
	// keeps an Event for an hour.
	sameEvent = 50 * time.Minute
	// deniedFor is how long we write no Events after the API server has refused one.
	deniedFor = time.Hour
)

// notice is one Event to be written.
type notice struct {
	kind, reason, message string
	first, last           time.Time
	count                 int
}

// eventWriter writes Events about our Node. Its methods are safe for concurrent use; run is called once.
type eventWriter struct {
	client *Client
	nodes  *table
	log    *slog.Logger
	wake   chan struct{}

	mu      sync.Mutex // protects what follows
	notices []notice   // in the order in which they came up

	posted map[string]posted // run's alone; by kind and reason
}

// posted is an Event that was written.
type posted struct {
	name  string
	count int
	first time.Time
}

func newEventWriter(c *Client, n *table, log *slog.Logger) *eventWriter {
	return &eventWriter{client: c, nodes: n, log: log, wake: make(chan struct{}, 1), posted: map[string]posted{}}
}

func newNotice(kind, reason, message string, now time.Time) notice {
	return notice{kind: kind, reason: reason, message: clipMessage(message), first: now, last: now, count: 1}
}

// add has an Event written. It never blocks.
func (h *eventWriter) add(n notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.notices {
		if have := &h.notices[i]; have.kind == n.kind && have.reason == n.reason {
			have.message, have.last, have.count = n.message, n.last, have.count+n.count
			return
		}
	}
	if len(h.notices) == maxNotices {
		h.notices = h.notices[1:]
	}
	h.notices = append(h.notices, n)
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// take removes the first notice.
func (h *eventWriter) take() (n notice, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.notices) == 0 {
		return n, false
	}
	n, h.notices = h.notices[0], h.notices[1:]
	return n, true
}

// back puts a notice back that could not be written, before what came up meanwhile.
func (h *eventWriter) back(n notice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.notices {
		if have := &h.notices[i]; have.kind == n.kind && have.reason == n.reason {
			have.first, have.count = n.first, have.count+n.count
			return
		}
	}
	h.notices = append([]notice{n}, h.notices...)
}

// run writes what is told until ctx ends.
func (h *eventWriter) run(ctx context.Context) {
	limit := rate.NewLimiter(rate.Every(eventEvery), eventBurst)
	for {
		n, ok := h.take()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-h.wake:
			}
			continue
		}
		if limit.Wait(ctx) != nil {
			return
		}
		wait := time.Duration(0)
		switch err := h.post(ctx, n); {
		case err == nil:
		case ctx.Err() != nil:
			return
		case apierrors.IsForbidden(err):
			h.log.Info("no Events are written about our Node: the ClusterRole of this account lacks verbs create "+
				"and patch on resource events; all else goes on", "cause", err)
			wait = deniedFor
		case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
			h.log.Warn("an Event was not written", "reason", n.reason, "cause", err)
			continue
		default:
			wait = eventEvery/2 + rand.N(eventEvery/2)
		}
		if wait > 0 {
			h.back(n)
			if !sleep(ctx, wait) {
				return
			}
		}
	}
}

// post writes n as an Event of its own, or counts up that which says the same.
func (h *eventWriter) post(ctx context.Context, n notice) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	id := n.kind + " " + n.reason
	first, last := metav1.NewTime(n.first), metav1.NewTime(n.last)
	if was, ok := h.posted[id]; ok && n.last.Sub(was.first) < sameEvent {
		was.count += n.count
		err := h.send(ctx, http.MethodPatch, was.name, map[string]any{"message": n.message, "count": was.count,
			"lastTimestamp": last})
		if err == nil {
			h.posted[id] = was
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	own := h.nodes.own
	e := corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: eventName(own, id, n.first), Namespace: eventNamespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: own, UID: types.UID(own)},
		Reason:         n.reason, Message: n.message, Source: corev1.EventSource{Component: component, Host: own},
		FirstTimestamp: first, LastTimestamp: last, Count: int32(n.count), Type: n.kind,
	}
	if ours := h.nodes.ourNode(); ours != nil {
		e.InvolvedObject.UID = cmp.Or(ours.UID, e.InvolvedObject.UID)
	}
	err := h.send(ctx, http.MethodPost, "", e)
	if apierrors.IsAlreadyExists(err) { // the answer to the first try was lost
		err = nil
	}
	if err == nil {
		h.posted[id] = posted{e.Name, n.count, n.first}
		h.log.Debug("event written", "reason", n.reason, "message", n.message)
	}
	return err
}

// eventName is one that no other Event has.
func eventName(node, id string, at time.Time) string {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, id, at.UnixNano()) // a sum takes everything
	return fmt.Sprintf("%s.%x", strings.TrimRight(node[:min(len(node), 200)], ".-"), h.Sum64())
}

// send calls the API server about the Event called name, or a new one.
func (h *eventWriter) send(ctx context.Context, verb, name string, e any) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	r := h.client.api().Verb(verb).SetHeader("Content-Type", "application/json")
	if name != "" {
		r = h.client.api().Patch(types.MergePatchType).Name(name)
	}
	return r.Namespace(eventNamespace).Resource("events").Body(body).Do(ctx).Error()
}
