// Package fakekube is as much of a Kubernetes API server as weft asks for: Nodes that are listed in pages or
// streamed, watched, read, and patched by strategic merge; Pods that are read; Events that are made and
// changed. It says nothing about a real one, which test/kube has.
//
//	server.go   what a test does: it changes Nodes, has requests refused, and sees what was asked
//	answers.go  what a client gets
package fakekube

import (
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Server is a fake API server. Its methods are for any goroutine.
type Server struct {
	// URL is where it answers, besides the listeners of Serve.
	URL string

	t   testing.TB
	srv *httptest.Server

	mu      sync.Mutex
	nodes   map[string]*corev1.Node
	pods    map[string]*corev1.Pod // by namespace/name
	version int64
	oldest  int64 // changes up to here are forgotten
	changes []change
	changed chan struct{} // closed at every change
	cut     chan struct{} // closed to end all watches

	streams bool
	hangs   bool
	status  int // that lists and watches get; 0 for none
	denied  map[string]bool

	agent   string
	lists   []string
	patches []string
	events  []corev1.Event
	onPatch func(body []byte)
}

type change struct {
	version int64
	kind    string
	node    *corev1.Node
}

// New starts a server on a port of 127.0.0.1, which ends with the test.
func New(t testing.TB) *Server {
	s := &Server{
		t: t, nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{}, version: 100,
		changed: make(chan struct{}), streams: true, denied: map[string]bool{}, cut: make(chan struct{}),
	}
	s.srv = httptest.NewServer(s)
	t.Cleanup(s.Close)
	s.URL = s.srv.URL
	return s
}

// Close ends the server at URL.
func (s *Server) Close() { s.Stop(s.srv) }

// CutConnections ends the connections of clients to URL.
func (s *Server) CutConnections() { s.srv.CloseClientConnections() }

// Serve answers on l too, until stop is called or the test ends.
func (s *Server) Serve(l net.Listener) (stop func()) {
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: s}}
	srv.Start()
	stop = sync.OnceFunc(func() { s.Stop(srv) })
	s.t.Cleanup(stop)
	return stop
}

// Stop ends an HTTP server of s, with the clients that are connected and those about to be.
func (s *Server) Stop(srv *httptest.Server) {
	closed := make(chan struct{})
	go func() {
		srv.Close()
		close(closed)
	}()
	for {
		s.CutWatches()
		srv.CloseClientConnections()
		select {
		case <-closed:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *Server) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Put makes or replaces a Node.
func (s *Server) Put(n *corev1.Node) { s.do(func() { s.put(n.DeepCopy()) }) }

func (s *Server) put(n *corev1.Node) {
	kind := "MODIFIED"
	if old := s.nodes[n.Name]; old != nil {
		n.UID = old.UID
	} else {
		kind = "ADDED"
		if n.UID == "" {
			n.UID = types.UID("uid-" + n.Name + "-" + strconv.FormatInt(s.version, 10))
		}
	}
	s.nodes[n.Name] = n
	s.tell(kind, n)
}

// tell gives n the next version, of which watches hear.
func (s *Server) tell(kind string, n *corev1.Node) {
	s.version++
	n.ResourceVersion = strconv.FormatInt(s.version, 10)
	s.changes = append(s.changes, change{s.version, kind, n})
	close(s.changed)
	s.changed = make(chan struct{})
}

// Change edits a Node, which is made if there is none.
func (s *Server) Change(name string, edit func(*corev1.Node)) {
	s.do(func() {
		n := s.nodes[name].DeepCopy()
		if n == nil {
			n = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		}
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		edit(n)
		s.put(n)
	})
}

// Remove deletes a Node.
func (s *Server) Remove(name string) {
	s.do(func() {
		n := s.nodes[name].DeepCopy()
		delete(s.nodes, name)
		s.tell("DELETED", n)
	})
}

// Node returns a copy, nil if there is none.
func (s *Server) Node(name string) *corev1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[name].DeepCopy()
}

// PutPod makes or replaces a Pod, which runs on a Node, or waits for one if node is empty.
func (s *Server) PutPod(namespace, name, node string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{NodeName: node}}
	s.do(func() { s.pods[namespace+"/"+name] = p })
}

// Restore puts the server back to these Nodes and to a version, which may be an earlier one. It has no
// history, and tells no watch.
func (s *Server) Restore(version int64, nodes ...*corev1.Node) {
	s.do(func() {
		s.version, s.oldest, s.changes = version, 0, nil
		clear(s.nodes)
		for _, n := range nodes {
			s.nodes[n.Name] = n
		}
	})
}

// Forget deletes a Node of which no watch hears, and all history with it: what was at an earlier version is
// gone (410).
func (s *Server) Forget(name string) {
	s.do(func() {
		delete(s.nodes, name)
		s.version++
		s.oldest, s.changes = s.version, nil
	})
}

// CutWatches ends all watches.
func (s *Server) CutWatches() {
	s.do(func() {
		close(s.cut)
		s.cut = make(chan struct{})
	})
}

// Streams says whether lists can be streamed, as they can at first.
func (s *Server) Streams(yes bool) { s.do(func() { s.streams = yes }) }

// Hang has no request answered until it is called with false.
func (s *Server) Hang(yes bool) { s.do(func() { s.hangs = yes }) }

// Break has lists and watches refused with that HTTP status, 0 to end that.
func (s *Server) Break(status int) { s.do(func() { s.status = status }) }

// Deny has requests refused for want of a right, each given as "verb resource".
func (s *Server) Deny(rights ...string) {
	s.do(func() {
		for _, r := range rights {
			s.denied[r] = true
		}
	})
}

// Allow gives every right again.
func (s *Server) Allow() { s.do(func() { clear(s.denied) }) }

// OnPatch is called with each patch of a Node that was taken, before it is answered.
func (s *Server) OnPatch(f func(body []byte)) { s.do(func() { s.onPatch = f }) }

// Patches are the bodies of all patches of Nodes.
func (s *Server) Patches() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.patches)
}

// Lists are the queries of all lists and watches.
func (s *Server) Lists() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lists)
}

// Agent is the user agent of the last request.
func (s *Server) Agent() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agent
}

// Events are the Events as they are now, of a reason if it is not empty.
func (s *Server) Events(reason string) (out []corev1.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if reason == "" || e.Reason == reason {
			out = append(out, e)
		}
	}
	return out
}

// ExpireEvents deletes the Events of a reason, as the API server does after an hour.
func (s *Server) ExpireEvents(reason string) {
	s.do(func() {
		s.events = slices.DeleteFunc(s.events, func(e corev1.Event) bool { return e.Reason == reason })
	})
}
