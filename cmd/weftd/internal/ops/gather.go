package ops

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"weft/cmd/internal/control"
)

// gatherer makes our families, and those of Go and of the process. Ours are made from a Snapshot without the
// library's collectors, whose checks cost several times as much with thousands of peers.
type gatherer struct {
	process  prometheus.Gatherer
	families []Metric
	pages    Pages
}

func newGatherer(pages Pages) *gatherer {
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &gatherer{process, Metrics(), pages}
}

// Gather implements prometheus.Gatherer.
func (g *gatherer) Gather() ([]*dto.MetricFamily, error) {
	all, err := g.process.Gather()
	parts := control.PartTraffic
	if g.pages.PerPeer {
		parts |= control.PartPeers
	}
	if g.pages.PerPod {
		parts |= control.PartPods
	}
	p := newPage(g.pages.Snapshot(parts))
	for i := range g.families {
		if !g.pages.PerPeer && slices.Contains(g.families[i].Labels, "peer") {
			continue
		}
		if f := g.families[i].gather(p); len(f.Metric) > 0 {
			all = append(all, f)
		}
	}
	return all, err
}

// gather reads one family, with the labels by name, as the library writes them.
func (m *Metric) gather(p *page) *dto.MetricFamily {
	order := make([]int, len(m.Labels))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(m.Labels[a], m.Labels[b]) })
	f := &dto.MetricFamily{Name: &m.Name, Help: &m.Help, Type: m.Kind.ToDTO()}
	m.read(p, func(v float64, values ...string) {
		one := &dto.Metric{}
		if m.Kind == prometheus.CounterValue {
			one.Counter = &dto.Counter{Value: &v}
		} else {
			one.Gauge = &dto.Gauge{Value: &v}
		}
		for _, i := range order {
			value := strings.ToValidUTF8(values[i], "\uFFFD") // it may come from the store
			one.Label = append(one.Label, &dto.LabelPair{Name: &m.Labels[i], Value: &value})
		}
		f.Metric = append(f.Metric, one)
	})
	return f
}
