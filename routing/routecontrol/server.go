package routecontrol

import (
	"cmp"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"weft/routing/routehook"
)

// Options are what a Controller is made from.
type Options struct {
	// Networks are those in which routes are taken; a view with others is refused whole.
	Networks []netip.Prefix
	// Token returns what a node has to show, which may be renewed, and logs why a new one cannot be used; nil
	// for none, where something else keeps strangers out. It is safe for concurrent use.
	Token func(*slog.Logger) string
	// Grace is how long nothing is removed after the start, and after the views of most nodes ended together:
	// longer than nodes take to give their views again.
	Grace time.Duration
	// Wait is how long a node that gives a view is kept waiting for the round that is to put it in place, before
	// its routes are called pending: well below the 10 s that nodes wait for an answer. Again is how long after
	// a round the next one looks at what became of the routes, unless views change before. 0 for 3 s and for 5
	// s.
	Wait, Again time.Duration
	Programmer  Programmer
	Logger      *slog.Logger
	// Now is the clock; nil for the system's.
	Now func() time.Time
}

// Controller serves nodes. It is safe for concurrent use.
type Controller struct {
	o   Options
	run string // makes the ETags of another process others

	wake chan struct{} // has an element if a round is asked for

	mu     sync.Mutex
	views  map[string]*held
	lives  lives
	number uint64
	all    *merged // nil if views changed since it was made
	places map[netip.Prefix]placed
	next   chan struct{} // closed when the round that begins next is over
	stats  Stats
}

// New returns a Controller, which answers while Run runs. Programmer and Networks must be given.
func New(o Options) (*Controller, error) {
	if o.Programmer == nil || len(o.Networks) == 0 {
		return nil, errors.New("route controller: want a Programmer and Networks")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Wait, o.Again = cmp.Or(o.Wait, 3*time.Second), cmp.Or(o.Again, 5*time.Second)
	return &Controller{
		o: o, run: rand.Text()[:8], wake: make(chan struct{}, 1), views: map[string]*held{},
		lives:  lives{begun: o.Now(), lost: map[string]time.Time{}},
		places: map[netip.Prefix]placed{}, next: make(chan struct{}),
	}, nil
}

// maxView is how long a view may be, in bytes; maxViews how many there may be.
const (
	maxView  = 16 << 20
	maxViews = 1 << 14
)

// ServeHTTP serves the paths of docs/route-hook.openapi.json.
func (c *Controller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /v1/views/{node}", c.put)
	mux.HandleFunc("GET /v1/views/{node}", c.get)
	mux.HandleFunc("DELETE /v1/views/{node}", c.remove)
	mux.HandleFunc("GET /v1/routes", c.routes)
	if c.o.Token != nil {
		shown, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !bearer || subtle.ConstantTimeCompare([]byte(shown), []byte(c.o.Token(c.o.Logger))) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "this controller wants another token", http.StatusUnauthorized)
			return
		}
	}
	mux.ServeHTTP(w, r)
}

func (c *Controller) put(w http.ResponseWriter, r *http.Request) {
	var v routehook.View
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxView))
	if err := d.Decode(&v); err != nil {
		http.Error(w, "the view is not JSON of its kind: "+err.Error(), http.StatusBadRequest)
		return
	}
	if err := c.check(v, r.PathValue("node")); err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	h, status, err := c.take(v, r)
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	if h.round != nil {
		c.await(r.Context(), h.round)
	}
	c.mu.Lock()
	a := judge(v, c.merged(), c.places)
	c.mu.Unlock()
	w.Header().Set("ETag", h.etag)
	answer(w, status, a)
}

// take notes a view in place of the one there was, and asks for a round if it has other routes. With an error
// the status says what to answer.
func (c *Controller) take(v routehook.View, r *http.Request) (*held, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, old := c.o.Now(), c.views[v.Node]
	if !c.matches(r, old) {
		return nil, http.StatusPreconditionFailed,
			errors.New("this controller has another view of the node than the one that this is to replace")
	}
	status := http.StatusOK
	if old == nil {
		if len(c.views) >= maxViews {
			return nil, http.StatusInsufficientStorage, errors.New("too many nodes")
		}
		status, old = http.StatusCreated, &held{}
	}
	c.number++
	h := &held{view: v, etag: fmt.Sprintf("%q", fmt.Sprintf("%s-%d", c.run, c.number)),
		expires: now.Add(time.Duration(v.Lifetime) * time.Second), claimed: map[netip.Prefix]time.Time{}}
	for _, x := range v.Routes {
		if x.Own {
			h.claimed[x.Subnet] = now
			if since, known := old.claimed[x.Subnet]; known {
				h.claimed[x.Subnet] = since
			}
		}
	}
	c.views[v.Node], c.all = h, nil
	c.lives.heard(v.Node)
	if !slices.Equal(old.view.Routes, v.Routes) { // else the rounds that are made anyway are enough
		h.round = c.ask()
	}
	return h, status, nil
}

// check returns what is wrong with a view of a node.
func (c *Controller) check(v routehook.View, node string) error {
	if err := v.Check(); err != nil {
		return err
	}
	if v.Node != node {
		return fmt.Errorf("the view is node %q's, and the URL says %q", v.Node, node)
	}
	for _, x := range v.Routes {
		if !routehook.Inside(x.Subnet, c.o.Networks) {
			return fmt.Errorf("subnet %v is in none of this controller's networks %v", x.Subnet, c.o.Networks)
		}
	}
	return nil
}

// matches reports whether a request's condition holds (RFC 9110, sections 13.1.1 and 13.1.2). One without a
// condition does not: it could be late.
func (c *Controller) matches(r *http.Request, old *held) bool {
	if old == nil {
		return r.Header.Get("If-None-Match") == "*"
	}
	return r.Header.Get("If-Match") == old.etag
}

func (c *Controller) get(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.views[r.PathValue("node")]
	if h == nil {
		http.Error(w, "this controller has no view of that node", http.StatusNotFound)
		return
	}
	w.Header().Set("ETag", h.etag)
	answer(w, http.StatusOK, h.view)
}

// remove is for operators: a node that is gone for good is forgotten before its view's time is over, or after
// it.
func (c *Controller) remove(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	node := r.PathValue("node")
	had := c.views[node] != nil
	delete(c.views, node)
	c.lives.removed(node, had, len(c.views))
	c.all = nil
	c.ask()
	c.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (c *Controller) routes(w http.ResponseWriter, _ *http.Request) {
	out := struct {
		SchemaVersion int               `json:"schema_version"`
		Routes        []routehook.Route `json:"routes"`
	}{routehook.Schema, []routehook.Route{}}
	c.mu.Lock()
	out.Routes = append(out.Routes, c.merged().routes...)
	c.mu.Unlock()
	answer(w, http.StatusOK, out)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who asked is gone
}
