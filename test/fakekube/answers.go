package fakekube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	hangs := s.hangs
	s.agent = r.UserAgent()
	s.mu.Unlock()
	if hangs {
		<-r.Context().Done()
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // api v1 nodes [name [status]]
	get, patch := r.Method == http.MethodGet, r.Method == http.MethodPatch
	switch {
	case len(parts) == 6 && parts[2] == "namespaces" && parts[4] == "pods":
		s.pod(w, parts[3]+"/"+parts[5])
	case len(parts) >= 5 && parts[3] == "default" && parts[4] == "events":
		s.event(w, r, parts[5:])
	case len(parts) < 3 || parts[2] != "nodes":
		s.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such path")
	case len(parts) == 3 && r.URL.Query().Get("watch") == "true":
		s.watch(w, r)
	case len(parts) == 3:
		s.list(w, r)
	case len(parts) == 4 && get:
		s.node(w, parts[3])
	case len(parts) == 5 && parts[4] == "status" && patch:
		s.patch(w, r, parts[3])
	default:
		s.fail(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "not that")
	}
}

// refuses answers a request for which the client has no right.
func (s *Server) refuses(w http.ResponseWriter, right string) bool {
	s.mu.Lock()
	denied := s.denied[right]
	s.mu.Unlock()
	if denied {
		s.fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, "nodes is forbidden: cannot "+right)
	}
	return denied
}

// breaks answers a list or a watch while Break is in force.
func (s *Server) breaks(w http.ResponseWriter) bool {
	s.mu.Lock()
	status := s.status
	s.mu.Unlock()
	reason := metav1.StatusReasonServiceUnavailable
	if status == http.StatusUnauthorized {
		reason = metav1.StatusReasonUnauthorized
	}
	if status != 0 {
		s.fail(w, status, reason, "not now")
	}
	return status != 0
}

func (s *Server) reply(w http.ResponseWriter, code int, kind string, obj any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(s.encode(kind, obj))
}

// encode adds the kind, which Go's objects leave out.
func (s *Server) encode(kind string, obj any) []byte {
	b, err := json.Marshal(obj)
	if err != nil {
		s.t.Errorf("encode %T: %v", obj, err)
		return nil
	}
	return append([]byte(`{"kind":"`+kind+`","apiVersion":"v1",`), b[1:]...)
}

func (s *Server) fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	s.reply(w, code, "Status",
		metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message})
}

func (s *Server) pod(w http.ResponseWriter, name string) {
	if s.refuses(w, "get pods") {
		return
	}
	s.mu.Lock()
	p := s.pods[name]
	s.mu.Unlock()
	if p == nil {
		s.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such pod")
		return
	}
	s.reply(w, http.StatusOK, "Pod", p)
}

func (s *Server) node(w http.ResponseWriter, name string) {
	if s.refuses(w, "get nodes") {
		return
	}
	n := s.Node(name)
	if n == nil {
		s.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such node")
		return
	}
	s.reply(w, http.StatusOK, "Node", n)
}

// only returns the name of the Node that a request is about, "" for all.
func only(r *http.Request) string {
	return strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
}

// all returns the Nodes that a request is about, by name.
func (s *Server) all(r *http.Request) (out []corev1.Node) {
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		if one := only(r); one == "" || one == name {
			out = append(out, *s.nodes[name])
		}
	}
	return out
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	if s.refuses(w, "list nodes") {
		return
	}
	s.mu.Lock()
	s.lists = append(s.lists, r.URL.RawQuery)
	l := corev1.NodeList{Items: s.all(r)}
	l.ResourceVersion = strconv.FormatInt(s.version, 10)
	s.mu.Unlock()
	if s.breaks(w) {
		return
	}
	q := r.URL.Query()
	from, _ := strconv.Atoi(q.Get("continue"))
	l.Items = l.Items[min(from, len(l.Items)):]
	if limit, err := strconv.Atoi(q.Get("limit")); err == nil && limit > 0 && limit < len(l.Items) {
		l.Items, l.Continue = l.Items[:limit], strconv.Itoa(from+limit)
	}
	s.reply(w, http.StatusOK, "NodeList", l)
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	if s.refuses(w, "watch nodes") {
		return
	}
	s.mu.Lock()
	s.lists = append(s.lists, r.URL.RawQuery)
	streams, cut, now, oldest := s.streams, s.cut, s.version, s.oldest
	initial := s.all(r)
	s.mu.Unlock()
	if s.breaks(w) {
		return
	}
	streamed := r.URL.Query().Get("sendInitialEvents") == "true"
	from, _ := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64)
	switch {
	case streamed && !streams:
		s.fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")
		return
	case streamed && from > now:
		const message = "Too large resource version"
		cause := metav1.StatusCause{Type: metav1.CauseTypeResourceVersionTooLarge, Message: message}
		s.reply(w, http.StatusGatewayTimeout, "Status", metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout,
			Message: message, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{cause}},
		})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	send := func(kind, of string, obj any) {
		_, _ = fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", kind, s.encode(of, obj))
		w.(http.Flusher).Flush()
	}
	w.(http.Flusher).Flush()
	if streamed {
		for _, n := range initial {
			send("ADDED", "Node", n)
		}
		var end corev1.Node
		end.ResourceVersion = strconv.FormatInt(now, 10)
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		send("BOOKMARK", "Node", end)
		from = now
	} else if from < oldest {
		send("ERROR", "Status", metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone,
			Reason: metav1.StatusReasonExpired, Message: "too old resource version"})
		return
	}
	for {
		s.mu.Lock()
		changed := s.changed
		at, _ := slices.BinarySearchFunc(s.changes, from+1, func(c change, v int64) int {
			return cmp.Compare(c.version, v)
		})
		news := slices.Clone(s.changes[at:])
		s.mu.Unlock()
		for _, c := range news {
			from = c.version
			if one := only(r); one == "" || c.node.Name == one {
				send(c.kind, "Node", c.node)
			}
		}
		select {
		case <-changed:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// read decodes a body, and fails the test if it is not of that type.
func (s *Server) read(r *http.Request, contentType string, into any) []byte {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if got := r.Header.Get("Content-Type"); err != nil || got != contentType {
		s.t.Errorf("%s %s is %s, want %s: %v", r.Method, r.URL.Path, got, contentType, err)
	}
	return body
}

// patch merges annotations, and conditions by their type.
func (s *Server) patch(w http.ResponseWriter, r *http.Request, name string) {
	if s.refuses(w, "patch nodes/status") {
		return
	}
	var p struct {
		Metadata struct{ Annotations map[string]*string }
		Status   struct{ Conditions []corev1.NodeCondition }
	}
	body := s.read(r, string(types.StrategicMergePatchType), &p)
	s.mu.Lock()
	s.patches = append(s.patches, string(body))
	n, taken := s.nodes[name].DeepCopy(), s.onPatch
	if n == nil {
		s.mu.Unlock()
		s.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such node")
		return
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	for key, v := range p.Metadata.Annotations {
		if v == nil {
			delete(n.Annotations, key)
		} else {
			n.Annotations[key] = *v
		}
	}
	for _, c := range p.Status.Conditions {
		n.Status.Conditions = append(slices.DeleteFunc(n.Status.Conditions,
			func(old corev1.NodeCondition) bool { return old.Type == c.Type }), c)
	}
	s.put(n)
	s.mu.Unlock()
	if taken != nil {
		taken(body)
	}
	s.reply(w, http.StatusOK, "Node", n)
}

// event makes an Event, or changes one.
func (s *Server) event(w http.ResponseWriter, r *http.Request, name []string) {
	right, contentType := "create events", "application/json"
	if len(name) > 0 {
		right, contentType = "patch events", string(types.MergePatchType)
	}
	if s.refuses(w, right) {
		return
	}
	var e corev1.Event
	s.read(r, contentType, &e)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(name) == 0 {
		s.events = append(s.events, e)
		s.reply(w, http.StatusOK, "Event", e)
		return
	}
	at := slices.IndexFunc(s.events, func(have corev1.Event) bool { return have.Name == name[0] })
	if at < 0 {
		s.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such event")
		return
	}
	have := &s.events[at]
	have.Message, have.Count, have.LastTimestamp = e.Message, e.Count, e.LastTimestamp
	s.reply(w, http.StatusOK, "Event", have)
}
