package ops

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// contentType is that of Prometheus' text format.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

// Registry renders our metrics, and those of Go and of the process. Ours are written straight from a
// Snapshot: with thousands of peers the library's objects for each value take ten times the text's
// memory. It is safe for concurrent use.
type Registry struct {
	pages    pages
	snapshot func() Snapshot
	metrics  []metric
	process  http.Handler
}

// NewRegistry returns a Registry that reads our metrics from snapshot, which is not called concurrently.
func NewRegistry(snapshot func() Snapshot) *Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r := &Registry{snapshot: snapshot, metrics: families(), process: promhttp.HandlerFor(reg, promhttp.HandlerOpts{})}
	r.pages.render = r.render
	return r
}

// render returns the whole page.
func (r *Registry) render() []byte {
	var out bytes.Buffer
	req := &http.Request{Method: http.MethodGet, Header: http.Header{}} // asks for text, not packed
	r.process.ServeHTTP(textOnly{&out}, req)
	s := r.snapshot()
	e := exposition{out: &out}
	for i := range r.metrics {
		e.family(&r.metrics[i], &s)
	}
	return out.Bytes()
}

// textOnly is a http.ResponseWriter that keeps the body.
type textOnly struct{ *bytes.Buffer }

// Header implements http.ResponseWriter.
func (textOnly) Header() http.Header { return http.Header{} }

// WriteHeader implements http.ResponseWriter.
func (textOnly) WriteHeader(int) {}

// exposition writes metrics as text.
type exposition struct {
	out  *bytes.Buffer
	line []byte
}

func (e *exposition) family(m *metric, s *Snapshot) {
	if s.Summary && slices.Contains(m.labels, "peer") {
		return
	}
	kind := "gauge"
	if m.kind == prometheus.CounterValue {
		kind = "counter"
	}
	head := "# HELP " + m.name + " " + escapeHelp(m.help) + "\n# TYPE " + m.name + " " + kind + "\n"
	order := make([]int, len(m.labels)) // labels by name, as the library writes them
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(m.labels[a], m.labels[b]) })
	m.read(s, func(v float64, values ...string) {
		e.out.WriteString(head) // not for a family without values
		head = ""
		e.line = append(e.line[:0], m.name...)
		for n, i := range order {
			e.line = append(e.line, "{,"[min(n, 1)])
			e.line = append(append(e.line, m.labels[i]...), `="`...)
			e.line = appendLabel(e.line, values[i])
			e.line = append(e.line, '"')
		}
		if len(m.labels) > 0 {
			e.line = append(e.line, '}')
		}
		e.line = strconv.AppendFloat(append(e.line, ' '), v, 'g', -1, 64)
		e.out.Write(append(e.line, '\n'))
	})
}

// escapeHelp keeps a help text on its line.
func escapeHelp(s string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(s)
}

// appendLabel appends a label's value, which may come from the store, and quotes it so that it cannot end early.
func appendLabel(b []byte, s string) []byte {
	if !strings.ContainsAny(s, "\\\"\n") && utf8.ValidString(s) {
		return append(b, s...)
	}
	for _, r := range s { // what is not UTF-8 becomes U+FFFD
		switch r {
		case '\\', '"':
			b = append(b, '\\', byte(r))
		case '\n':
			b = append(b, `\n`...)
		default:
			b = append(b, string(r)...)
		}
	}
	return b
}
