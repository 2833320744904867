package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"weft/routing/routecontrol"
	"weft/routing/routehook"
)

// metrics are what the controller counts. It is safe for concurrent use.
type metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	size     *prometheus.GaugeVec

	mu         sync.Mutex
	seen, told map[[2]string]bool // table and family: since the round began, and all that there is a series of
}

func newMetrics() *metrics {
	m := &metrics{
		seen: map[[2]string]bool{}, told: map[[2]string]bool{},
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weft_cloud_calls_total",
			Help: "Calls of the cloud's API by name and result: ok, throttled, refused, failed."},
			[]string{"call", "result"}),
		size: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weft_cloud_table_routes",
			Help: "Routes that a table had when it was last read, others' included."}, []string{"table", "family"}),
	}
	m.registry.MustRegister(m.calls, m.size)
	return m
}

func (m *metrics) called(call, result string) { m.calls.WithLabelValues(call, result).Inc() }

func (m *metrics) sized(table, family string, routes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[[2]string{table, family}], m.told[[2]string{table, family}] = true, true
	m.size.WithLabelValues(table, family).Set(float64(routes))
}

// forgetful is a Programmer after whose rounds no table is told of that was not seen in them: it is gone, or
// not marked any more.
type forgetful struct {
	routecontrol.Programmer
	m *metrics
}

// Program implements routecontrol.Programmer. A round that could not look forgets nothing.
func (f forgetful) Program(ctx context.Context, want []routehook.Route, keep bool) (map[netip.Prefix]error,
	error) {
	f.m.mu.Lock()
	clear(f.m.seen)
	f.m.mu.Unlock()
	faults, err := f.Programmer.Program(ctx, want, keep)
	if err == nil {
		f.m.forget()
	}
	return faults, err
}

func (m *metrics) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for t := range m.told {
		if !m.seen[t] {
			m.size.DeleteLabelValues(t[0], t[1])
			delete(m.told, t)
		}
	}
}

// watch adds what the controller says of itself.
func (m *metrics) watch(stats func() routecontrol.Stats) {
	gauge := func(name, help string, labels prometheus.Labels, value func(routecontrol.Stats) float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help,
			ConstLabels: labels}, func() float64 { return value(stats()) }))
	}
	counter := func(name, help string, value func(routecontrol.Stats) float64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return value(stats()) }))
	}
	const routes, help = "weft_cloud_routes",
		"Routes that nodes want, by what was found when the cloud was last looked at."
	gauge(routes, help, prometheus.Labels{"state": "accepted"}, func(s routecontrol.Stats) float64 {
		return float64(s.Accepted)
	})
	gauge(routes, help, prometheus.Labels{"state": "pending"}, func(s routecontrol.Stats) float64 {
		return float64(s.Pending)
	})
	gauge(routes, help, prometheus.Labels{"state": "refused"}, func(s routecontrol.Stats) float64 {
		return float64(s.Refused)
	})
	gauge("weft_cloud_views", "Nodes whose view counts.", nil, func(s routecontrol.Stats) float64 {
		return float64(s.Views)
	})
	gauge("weft_cloud_last_look_timestamp_seconds",
		"When the cloud was last looked at with success; 0 if never.", nil, func(s routecontrol.Stats) float64 {
			if s.Looked.IsZero() {
				return 0
			}
			return float64(s.Looked.UnixMilli()) / 1000
		})
	gauge("weft_cloud_round_seconds", "How long the last round took.", nil, func(s routecontrol.Stats) float64 {
		return s.Took.Seconds()
	})
	counter("weft_cloud_rounds_total", "Rounds in which the cloud was looked at and changed, or was to be.",
		func(s routecontrol.Stats) float64 { return float64(s.Rounds) })
	counter("weft_cloud_failed_rounds_total", "Rounds in which it could not be looked at.",
		func(s routecontrol.Stats) float64 { return float64(s.Failed) })
}

// serve serves /metrics until stop is called.
func (m *metrics) serve(at string, stats func() routecontrol.Stats, log *slog.Logger) (stop func(),
	err error) {
	m.watch(stats)
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, err
	}
	log.Info("metrics", "address", l.Addr())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = s.Serve(l) // it ends with stop
	}()
	return func() { _ = s.Close(); <-over }, nil // who scrapes comes again
}
