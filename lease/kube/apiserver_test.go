package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// apiServer speaks as much of Kubernetes' API as a manager asks for: Nodes listed in pages or
// streamed, watched, read, and patched by strategic merge; Pods read. It holds no truth about a
// real one: test/kube has that.
type apiServer struct {
	t   testing.TB
	srv *httptest.Server

	mu      sync.Mutex
	nodes   map[string]*corev1.Node
	pods    map[string]*corev1.Pod
	rv      int64
	least   int64 // events up to here are forgotten
	events  []happening
	moved   chan struct{}   // closed at every change
	streams bool            // lists can be streamed
	denied  map[string]bool // "verb resource" that gets 403
	hangs   bool            // no request is answered any more
	broken  int             // the code that lists and watches get; 0 for none
	cut     chan struct{}   // closed to end all watches
	patches []string        // bodies
	lists   []string        // queries of lists and watches
	agent   string
	told    []eventJSON // Events as they are now
	taken   func(patch) // is called with a patch that was taken, before it is answered
}

type happening struct {
	rv   int64
	kind string
	node *corev1.Node
}

func newAPIServer(t testing.TB) *apiServer {
	s := &apiServer{
		t: t, nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{}, rv: 100,
		moved: make(chan struct{}), streams: true, denied: map[string]bool{}, cut: make(chan struct{}),
	}
	s.srv = httptest.NewServer(s)
	t.Cleanup(s.close)
	return s
}

func (s *apiServer) close() { s.stop(s.srv) }

// stop ends a server that clients are connected to, and others about to be.
func (s *apiServer) stop(srv *httptest.Server) {
	closed := make(chan struct{})
	go func() {
		srv.Close()
		close(closed)
	}()
	for {
		s.cutWatches()
		srv.CloseClientConnections()
		select {
		case <-closed:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// config is that of a client whose node is name.
func (s *apiServer) config(name string) Config { return Config{APIURL: s.srv.URL, NodeName: name} }

func (s *apiServer) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// put creates or replaces a Node.
func (s *apiServer) put(n *corev1.Node) {
	s.do(func() { s.putLocked(n.DeepCopy()) })
}

func (s *apiServer) putLocked(n *corev1.Node) {
	kind := "MODIFIED"
	if old := s.nodes[n.Name]; old == nil {
		kind = "ADDED"
		if n.UID == "" {
			n.UID = types.UID(fmt.Sprintf("uid-%s-%d", n.Name, s.rv))
		}
	} else {
		n.UID = old.UID
	}
	s.rv++
	n.ResourceVersion = strconv.FormatInt(s.rv, 10)
	s.nodes[n.Name] = n
	s.happened(happening{s.rv, kind, n})
}

func (s *apiServer) happened(e happening) {
	s.events = append(s.events, e)
	close(s.moved)
	s.moved = make(chan struct{})
}

func (s *apiServer) remove(name string) {
	s.do(func() {
		n := s.nodes[name].DeepCopy()
		delete(s.nodes, name)
		s.rv++
		n.ResourceVersion = strconv.FormatInt(s.rv, 10)
		s.happened(happening{s.rv, "DELETED", n})
	})
}

// change edits a Node that is there.
func (s *apiServer) change(name string, f func(*corev1.Node)) {
	s.do(func() {
		n := s.nodes[name].DeepCopy()
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		f(n)
		s.putLocked(n)
	})
}

// node returns a copy.
func (s *apiServer) node(name string) *corev1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[name].DeepCopy()
}

func (s *apiServer) patched() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.patches)
}

func (s *apiServer) listed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lists)
}

// cutWatches ends all watches.
func (s *apiServer) cutWatches() {
	s.do(func() {
		close(s.cut)
		s.cut = make(chan struct{})
	})
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	hangs := s.hangs
	s.agent = r.UserAgent()
	s.mu.Unlock()
	if hangs {
		<-r.Context().Done()
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // api v1 nodes [name [status]]
	verb := map[string]string{"GET": "get", "PATCH": "patch"}[r.Method]
	switch {
	case len(parts) == 6 && parts[2] == "namespaces" && parts[4] == "pods":
		s.getPod(w, parts[3]+"/"+parts[5])
	case len(parts) >= 5 && parts[3] == "default" && parts[4] == "events":
		s.event(w, r, parts[5:])
	case len(parts) < 3 || parts[2] != "nodes":
		s.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such path")
	case len(parts) == 3 && r.URL.Query().Get("watch") == "true":
		s.watch(w, r)
	case len(parts) == 3:
		s.list(w, r)
	case len(parts) == 4 && verb == "get":
		s.get(w, parts[3])
	case len(parts) == 5 && parts[4] == "status" && verb == "patch":
		s.patch(w, r, parts[3])
	default:
		s.fail(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "not that")
	}
}

func (s *apiServer) refuses(w http.ResponseWriter, what string) bool {
	s.mu.Lock()
	denied := s.denied[what]
	s.mu.Unlock()
	if denied {
		s.fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, "nodes is forbidden: cannot "+what)
	}
	return denied
}

// breaks answers a list or a watch with an error, while there is one.
func (s *apiServer) breaks(w http.ResponseWriter, r *http.Request) bool {
	s.mu.Lock()
	code := s.broken
	if code != 0 {
		s.lists = append(s.lists, r.URL.RawQuery)
	}
	s.mu.Unlock()
	if code != 0 {
		s.fail(w, code, metav1.StatusReasonServiceUnavailable, "not now")
	}
	return code != 0
}

func (s *apiServer) reply(w http.ResponseWriter, code int, kind string, obj any) {
	b, err := json.Marshal(obj)
	if err != nil {
		s.t.Errorf("encode %T: %v", obj, err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(typed(kind, b))
}

// typed adds what a Go object leaves out.
func typed(kind string, b []byte) []byte {
	return append([]byte(`{"kind":"`+kind+`","apiVersion":"v1",`), b[1:]...)
}

func (s *apiServer) fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	s.reply(w, code, "Status", metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message})
}

func (s *apiServer) getPod(w http.ResponseWriter, name string) {
	if s.refuses(w, "get pods") {
		return
	}
	s.mu.Lock()
	pod := s.pods[name]
	s.mu.Unlock()
	if pod == nil {
		s.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such pod")
		return
	}
	s.reply(w, http.StatusOK, "Pod", pod)
}

func (s *apiServer) get(w http.ResponseWriter, name string) {
	if s.refuses(w, "get nodes") {
		return
	}
	s.mu.Lock()
	n := s.nodes[name]
	s.mu.Unlock()
	if n == nil {
		s.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such node")
		return
	}
	s.reply(w, http.StatusOK, "Node", n)
}

// all returns the Nodes by name, as field selectors allow.
func (s *apiServer) all(r *http.Request) []corev1.Node {
	only := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	var out []corev1.Node
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		if only == "" || only == name {
			out = append(out, *s.nodes[name])
		}
	}
	return out
}

func (s *apiServer) list(w http.ResponseWriter, r *http.Request) {
	if s.refuses(w, "list nodes") || s.breaks(w, r) {
		return
	}
	q := r.URL.Query()
	s.mu.Lock()
	s.lists = append(s.lists, r.URL.RawQuery)
	l := corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(s.rv, 10)}, Items: s.all(r)}
	s.mu.Unlock()
	from, _ := strconv.Atoi(q.Get("continue"))
	l.Items = l.Items[min(from, len(l.Items)):]
	if limit, err := strconv.Atoi(q.Get("limit")); err == nil && limit > 0 && limit < len(l.Items) {
		l.Items, l.Continue = l.Items[:limit], strconv.Itoa(from+limit)
	}
	s.reply(w, http.StatusOK, "NodeList", l)
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	if s.refuses(w, "watch nodes") || s.breaks(w, r) {
		return
	}
	q := r.URL.Query()
	s.mu.Lock()
	s.lists = append(s.lists, r.URL.RawQuery)
	streams, cut, now, least := s.streams, s.cut, s.rv, s.least
	initial := s.all(r)
	s.mu.Unlock()
	streamed := q.Get("sendInitialEvents") == "true"
	if streamed && !streams {
		s.fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")
		return
	}
	from, _ := strconv.ParseInt(q.Get("resourceVersion"), 10, 64)
	if streamed && from > now {
		s.reply(w, http.StatusGatewayTimeout, "Status", metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout, Message: "Too large resource version",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}},
		})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	send := func(kind, objKind string, obj any) {
		b, err := json.Marshal(obj)
		if err != nil {
			s.t.Errorf("encode %T: %v", obj, err)
		}
		_, _ = fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", kind, typed(objKind, b))
		w.(http.Flusher).Flush()
	}
	w.(http.Flusher).Flush()
	if streamed {
		for _, n := range initial {
			send("ADDED", "Node", n)
		}
		end := corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.FormatInt(now, 10), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
		send("BOOKMARK", "Node", end)
		from = now
	} else if from < least {
		send("ERROR", "Status", metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version"})
		return
	}
	only := strings.TrimPrefix(q.Get("fieldSelector"), "metadata.name=")
	for {
		s.mu.Lock()
		moved := s.moved
		i, _ := slices.BinarySearchFunc(s.events, from, func(e happening, rv int64) int { return cmp.Compare(e.rv, rv+1) })
		news := slices.Clone(s.events[i:])
		s.mu.Unlock()
		for _, e := range news {
			from = e.rv
			if only == "" || e.node.Name == only {
				send(e.kind, "Node", e.node)
			}
		}
		select {
		case <-moved:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (s *apiServer) patch(w http.ResponseWriter, r *http.Request, name string) {
	if s.refuses(w, "patch nodes/status") {
		return
	}
	body, err := io.ReadAll(r.Body)
	var p patch
	if err == nil {
		err = json.Unmarshal(body, &p)
	}
	if want := string(types.StrategicMergePatchType); err != nil || r.Header.Get("Content-Type") != want {
		s.t.Errorf("patch of %s as %s: %v", name, r.Header.Get("Content-Type"), err)
	}
	s.mu.Lock()
	s.patches = append(s.patches, string(body))
	n := s.nodes[name].DeepCopy()
	if n == nil {
		s.mu.Unlock()
		s.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such node")
		return
	}
	if p.Metadata != nil {
		for key, v := range p.Metadata.Annotations {
			if v == nil {
				delete(n.Annotations, key)
				continue
			}
			if n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
			n.Annotations[key] = *v
		}
	}
	if p.Status != nil {
		for _, c := range p.Status.Conditions {
			n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(d corev1.NodeCondition) bool { return c.Type == d.Type })
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
				Type: corev1.NodeConditionType(c.Type), Status: corev1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
				LastHeartbeatTime: c.LastHeartbeatTime, LastTransitionTime: c.LastTransitionTime,
			})
		}
	}
	s.putLocked(n)
	taken := s.taken
	s.mu.Unlock()
	if taken != nil {
		taken(p)
	}
	s.reply(w, http.StatusOK, "Node", n)
}

// event makes an Event, or changes one.
func (s *apiServer) event(w http.ResponseWriter, r *http.Request, name []string) {
	if s.refuses(w, map[string]string{"POST": "create", "PATCH": "patch"}[r.Method]+" events") {
		return
	}
	var e eventJSON
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	if want := map[bool]string{true: "application/json", false: string(types.MergePatchType)}[len(name) == 0]; err != nil || r.Header.Get("Content-Type") != want {
		s.t.Errorf("event as %s: %v", r.Header.Get("Content-Type"), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(name) == 0 {
		s.told = append(s.told, e)
	} else if i := slices.IndexFunc(s.told, func(have eventJSON) bool { return have.Metadata.Name == name[0] }); i >= 0 {
		s.told[i].Message, s.told[i].Count, s.told[i].Last = e.Message, e.Count, e.Last
	} else {
		s.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such event")
		return
	}
	s.reply(w, http.StatusOK, "Event", e)
}

// during runs f beside the test, and ends it with it.
func during(t testing.TB, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("run: %v", err)
				}
			case <-time.After(30 * time.Second):
				t.Error("run does not end")
			}
		})
	}
	t.Cleanup(stop)
	return stop
}
