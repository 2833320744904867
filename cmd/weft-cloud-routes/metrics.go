package main

import (
	"log/slog"
	"net"
	"net/http"
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

var (
	routesDesc = prometheus.NewDesc("weft_cloud_routes",
		"Routes that nodes want, by what was found when the cloud was last looked at.", []string{"state"}, nil)
	sizeDesc = prometheus.NewDesc("weft_cloud_table_routes",
		"Routes that a table had when it was last read, others' included.", []string{"table", "family"}, nil)
	viewsDesc  = prometheus.NewDesc("weft_cloud_views", "Nodes whose view counts.", nil, nil)
	lookedDesc = prometheus.NewDesc("weft_cloud_last_look_timestamp_seconds",
		"When the cloud was last looked at with success; 0 if never.", nil, nil)
	tookDesc   = prometheus.NewDesc("weft_cloud_round_seconds", "How long the last round took.", nil, nil)
	roundsDesc = prometheus.NewDesc("weft_cloud_rounds_total",
		"Rounds in which the cloud was looked at and changed, or was to be.", nil, nil)
	failedDesc = prometheus.NewDesc("weft_cloud_failed_rounds_total",
		"Rounds in which it could not be looked at.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	tell := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	s := m.stats()
	looked := 0.0
	if !s.Looked.IsZero() {
		looked = float64(s.Looked.UnixMilli()) / 1000
	}
	tell(routesDesc, prometheus.GaugeValue, float64(s.Accepted), "accepted")
	tell(routesDesc, prometheus.GaugeValue, float64(s.Pending), "pending")
	tell(routesDesc, prometheus.GaugeValue, float64(s.Refused), "refused")
	tell(viewsDesc, prometheus.GaugeValue, float64(s.Views))
	tell(lookedDesc, prometheus.GaugeValue, looked)
	tell(tookDesc, prometheus.GaugeValue, s.Took.Seconds())
	tell(roundsDesc, prometheus.CounterValue, float64(s.Rounds))
	tell(failedDesc, prometheus.CounterValue, float64(s.Failed))
	if tables := m.tables.Load(); tables != nil {
		for _, t := range *tables {
			tell(sizeDesc, prometheus.GaugeValue, float64(t.IPv4), t.ID, "ipv4")
			tell(sizeDesc, prometheus.GaugeValue, float64(t.IPv6), t.ID, "ipv6")
		}
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
