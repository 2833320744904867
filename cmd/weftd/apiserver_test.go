package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// apiServer is a fake of those parts of an API server that weftd needs: Nodes, and the Pods that run on them.
type apiServer struct {
	mu      sync.Mutex
	nodes   map[string]*corev1.Node
	events  []event // all that ever happened
	changed chan struct{}
	server  *http.Server
}

// event is one change; its place in the list is its resource version less one.
type event struct {
	kind string
	node *corev1.Node
}

func newAPIServer(t *testing.T) *apiServer {
	a := &apiServer{nodes: map[string]*corev1.Node{}, changed: make(chan struct{})}
	t.Cleanup(a.stop)
	return a
}

// serve answers on l until stop.
func (a *apiServer) serve(l net.Listener) {
	s := &http.Server{Handler: a}
	a.mu.Lock()
	a.server = s
	a.mu.Unlock()
	go func() { _ = s.Serve(l) }() // ends with stop
}

// stop closes the listener and every connection.
func (a *apiServer) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.server != nil {
		_ = a.server.Close()
		a.server = nil
	}
}

// update changes a Node, which is made if it is not there.
func (a *apiServer) update(name string, change func(*corev1.Node)) *corev1.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind, n := "MODIFIED", a.nodes[name].DeepCopy()
	if n == nil {
		kind = "ADDED"
		n = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
		n.APIVersion, n.Kind = "v1", "Node"
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	change(n)
	n.ResourceVersion = strconv.Itoa(len(a.events) + 1)
	a.nodes[name] = n
	a.events = append(a.events, event{kind, n})
	close(a.changed)
	a.changed = make(chan struct{})
	return n
}

// node is a copy.
func (a *apiServer) node(name string) *corev1.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nodes[name].DeepCopy()
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, _ := strings.CutPrefix(r.URL.Path, "/api/v1/")
	part := strings.Split(path, "/")
	switch {
	case part[0] == "namespaces" && len(part) == 4 && part[2] == "pods": // it is called as its Node is, with more behind
		pod := corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: part[3], Namespace: part[1]}}
		pod.Spec.NodeName, _, _ = strings.Cut(part[3], "--")
		answer(w, http.StatusOK, pod)
	case part[0] != "nodes":
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case len(part) == 1 && r.URL.Query().Get("watch") != "":
		a.watch(w, r)
	case len(part) == 1:
		a.list(w, only(r))
	case a.node(part[1]) == nil:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodPatch && len(part) == 3 && part[2] == "status":
		a.patch(w, r, part[1])
	default:
		answer(w, http.StatusOK, a.node(part[1]))
	}
}

// only returns the name of the one Node that the request is about, "" if it is about all.
func only(r *http.Request) string {
	return strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
}

func (a *apiServer) list(w http.ResponseWriter, one string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	l.ResourceVersion = strconv.Itoa(len(a.events))
	for _, name := range slices.Sorted(maps.Keys(a.nodes)) {
		if one == "" || one == name {
			l.Items = append(l.Items, *a.nodes[name])
		}
	}
	answer(w, http.StatusOK, l)
}

// watch sends what happens after the version asked for, or all Nodes first if that is asked for.
func (a *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	seen, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	w.Header().Set("Content-Type", "application/json")
	for {
		a.mu.Lock()
		var send []event
		if initial {
			initial, seen = false, len(a.events)
			for _, n := range a.nodes {
				send = append(send, event{"ADDED", n})
			}
			mark := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
			mark.ResourceVersion, mark.Annotations = strconv.Itoa(seen), map[string]string{metav1.InitialEventsAnnotationKey: "true"}
			send = append(send, event{"BOOKMARK", mark})
		}
		send = append(send, a.events[min(seen, len(a.events)):]...)
		seen = len(a.events)
		changed := a.changed
		a.mu.Unlock()
		for _, e := range send {
			if one := only(r); one != "" && e.kind != "BOOKMARK" && e.node.Name != one {
				continue
			}
			if err := json.NewEncoder(w).Encode(map[string]any{"type": e.kind, "object": e.node}); err != nil {
				return
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// patch merges what weftd sends: annotations, and conditions by their type.
func (a *apiServer) patch(w http.ResponseWriter, r *http.Request, name string) {
	var p struct {
		Metadata struct {
			Annotations map[string]*string
		}
		Status struct {
			Conditions []corev1.NodeCondition
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	answer(w, http.StatusOK, a.update(name, func(n *corev1.Node) {
		for key, value := range p.Metadata.Annotations {
			if value == nil {
				delete(n.Annotations, key)
			} else {
				n.Annotations[key] = *value
			}
		}
		for _, c := range p.Status.Conditions {
			n.Status.Conditions = append(slices.DeleteFunc(n.Status.Conditions, func(o corev1.NodeCondition) bool { return o.Type == c.Type }), c)
		}
	}))
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // it fails only if the client has gone away
}

func refuse(w http.ResponseWriter, status int, reason metav1.StatusReason) {
	answer(w, status, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(status)})
}

// podCIDR returns a change that assigns podCIDRs to a Node.
func podCIDR(cidrs ...string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = cidrs[0], cidrs }
}

// condition returns the Node's condition of that kind.
func (a *apiServer) condition(name string, kind corev1.NodeConditionType) (corev1.NodeCondition, error) {
	for _, c := range a.node(name).Status.Conditions {
		if c.Type == kind {
			return c, nil
		}
	}
	return corev1.NodeCondition{}, errors.New(fmt.Sprint("no condition ", kind))
}
