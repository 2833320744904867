package main

import (
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routecontrol"
)

// metrics are what the controller counts. It is safe for concurrent use.
type metrics struct {
	calls  *prometheus.CounterVec
	tables atomic.Pointer[[]table.Table] // of the last round that could look
	stats  func() routecontrol.Stats     // set before they are served
}

func newMetrics() *metrics {
	return &metrics{calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weft_cloud_calls_total",
		Help: "Calls of the cloud's API by name and result: ok, throttled, refused, failed."},
		[]string{"call", "result"})}
}

func (m *metrics) called(call, result string) { m.calls.WithLabelValues(call, result).Inc() }

func (m *metrics) sized(tables []table.Table) { m.tables.Store(&tables) }

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	tell := func(kind prometheus.ValueType, name, help string, value float64, labels ...string) {
		var names, values []string
		for pair := range slices.Chunk(labels, 2) {
			names, values = append(names, pair[0]), append(values, pair[1])
		}
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, value, values...)
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	s := m.stats()
	const routes, helpRoutes = "weft_cloud_routes",
		"Routes that nodes want, by what was found when the cloud was last looked at."
	tell(gauge, routes, helpRoutes, float64(s.Accepted), "state", "accepted")
	tell(gauge, routes, helpRoutes, float64(s.Pending), "state", "pending")
	tell(gauge, routes, helpRoutes, float64(s.Refused), "state", "refused")
	tell(gauge, "weft_cloud_views", "Nodes whose view counts.", float64(s.Views))
	looked := 0.0
	if !s.Looked.IsZero() {
		looked = float64(s.Looked.UnixMilli()) / 1000
	}
	tell(gauge, "weft_cloud_last_look_timestamp_seconds",
		"When the cloud was last looked at with success; 0 if never.", looked)
	tell(gauge, "weft_cloud_round_seconds", "How long the last round took.", s.Took.Seconds())
	tell(counter, "weft_cloud_rounds_total",
		"Rounds in which the cloud was looked at and changed, or was to be.", float64(s.Rounds))
	tell(counter, "weft_cloud_failed_rounds_total",
		"Rounds in which it could not be looked at.", float64(s.Failed))
	tables := m.tables.Load()
	if tables == nil {
		return
	}
	const size, helpSize = "weft_cloud_table_routes",
		"Routes that a table had when it was last read, others' included."
	for _, t := range *tables {
		tell(gauge, size, helpSize, float64(t.IPv4), "table", t.ID, "family", "ipv4")
		tell(gauge, size, helpSize, float64(t.IPv6), "table", t.ID, "family", "ipv6")
	}
}

// serve serves /metrics until stop is called.
func (m *metrics) serve(at string, stats func() routecontrol.Stats, log *slog.Logger) (stop func(),
	err error) {
	m.stats = stats
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.calls, m)
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, err
	}
	log.Info("metrics", "address", l.Addr())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = s.Serve(l) // it ends with stop
	}()
	return func() { _ = s.Close(); <-over }, nil // who scrapes comes again
}
