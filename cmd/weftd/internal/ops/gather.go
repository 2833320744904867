package ops

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"weft/cmd/internal/control"
)

// registry has our metrics, and those of Go and of the process.
func registry(pages Pages) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collector{pages})
	return r
}

// collector makes our metrics from one Snapshot.
type collector struct{ pages Pages }

// Describe implements prometheus.Collector: nothing is checked beforehand.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	parts := control.PartTraffic
	if c.pages.PerPeer {
		parts |= control.PartPeers
	}
	if c.pages.PerPod {
		parts |= control.PartPods
	}
	p := newPage(c.pages.Snapshot(parts))
	for _, m := range Metrics() {
		if !c.pages.PerPeer && slices.Contains(m.Labels, "peer") {
			continue
		}
		desc := prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
		m.read(p, func(v float64, labels ...string) {
			for i, l := range labels {
				labels[i] = strings.ToValidUTF8(l, "\uFFFD") // it may come from the store
			}
			ch <- prometheus.MustNewConstMetric(desc, m.Kind, v, labels...)
		})
	}
}
