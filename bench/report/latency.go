package report

import (
	"fmt"
	"math"
	"strings"
	"time"

	"weft/bench/histogram"
)

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// percentiles makes a curve of how long a share of the round trips took at most. x is minus the logarithm of
// the share that took longer. The curve ends where only ten round trips took longer.
func percentiles(h *histogram.Histogram) (l []point) {
	const steps = 80
	end := min(math.Log10(float64(h.Count())/10), 4)
	for i := 0; i <= steps && end > 0; i++ {
		x := end * float64(i) / steps
		l = append(l, point{x: x, y: microseconds(h.Quantile(1 - math.Pow(10, -x)))})
	}
	return l
}

// percentileAxis makes an axis with ticks at the shares that people ask for.
func percentileAxis(curves []curve) axis {
	a := axis{to: most(curves, func(p point) float64 { return p.x }), title: "of the round trips took no longer"}
	for _, q := range []float64{0.5, 0.9, 0.99, 0.999, 0.9999} {
		if at := -math.Log10(1 - q); at <= a.to*1.001 {
			a.ticks = append(a.ticks, tick{at, fmt.Sprintf("%g %%", q*100)})
		}
	}
	return a
}

// perDecade is how many columns a drawn histogram has from 10 to 100 us, and in each other decade.
const perDecade = 28

// columns returns the percentage of the round trips in each column, from the one before the first that is not empty
// to the one after the last. A bucket that lies in two columns is divided between them.
func columns(h *histogram.Histogram) (l []point) {
	shares := map[int]float64{}
	first, last := math.MaxInt, math.MinInt
	position := func(d time.Duration) float64 { return math.Log10(max(microseconds(d), 1e-3)) * perDecade }
	for _, b := range h.Buckets() {
		from, to := position(b.Above), position(b.UpTo)
		share := 100 * float64(b.Count) / float64(h.Count())
		for i := int(math.Floor(from)); float64(i) < to || from == to && float64(i) <= to; i++ {
			part := 1.0
			if to > from {
				part = (min(to, float64(i+1)) - max(from, float64(i))) / (to - from)
			}
			shares[i] += share * part
			first, last = min(first, i), max(last, i)
		}
	}
	for i := first - 1; i <= last+1 && len(shares) > 0; i++ {
		l = append(l, point{x: math.Pow(10, (float64(i)+0.5)/perDecade), y: shares[i]})
	}
	return l
}

// latencyCards returns two charts for each placement, and one table.
func (d *Document) latencyCards() (l []card) {
	table := &grid{Head: []string{"ends", "rung", "p50", "p90", "p99", "p99.9", "longest", "round trips"}}
	for i := range d.Measures {
		if m := &d.Measures[i]; m.Kind == PingPong {
			l = append(l, d.latencyCharts(m)...)
			table.Rows = append(table.Rows, latencyRows(m)...)
		}
	}
	if len(table.Rows) > 0 {
		l = append(l, card{Title: "Round trips in microseconds", Table: table, Wide: true})
	}
	return l
}

// placement says in words on which CPUs the ends ran.
func placement(m *Measure) string {
	if m.Placement == "any" {
		return "not pinned"
	}
	if from, to, _ := strings.Cut(m.Placement, ","); from == to {
		return "both pinned to CPU " + from
	}
	return "pinned to CPUs " + strings.ReplaceAll(m.Placement, ",", " and ")
}

// placed is placement with the wire.
func placed(m *Measure) string {
	if m.Wire == "" {
		return placement(m)
	}
	return placement(m) + ", wire " + m.Wire
}

func latencyRows(m *Measure) (rows [][]string) {
	for _, r := range m.Results {
		if h := r.RoundTrips; h != nil && h.Count() > 0 {
			row := []string{placed(m), r.Rung}
			for _, q := range []float64{0.5, 0.9, 0.99, 0.999} {
				row = append(row, figure(microseconds(h.Quantile(q))))
			}
			rows = append(rows, append(row, figure(microseconds(h.Max())), fmt.Sprint(h.Count())))
		}
	}
	return rows
}

func (d *Document) latencyCharts(m *Measure) []card {
	var tails, bodies []curve
	low, high := math.Inf(1), 0.0
	for _, r := range m.Results {
		h := r.RoundTrips
		if h == nil || h.Count() == 0 {
			continue
		}
		style := d.styleOf(r.Rung)
		tails = append(tails, curve{rung: r.Rung, style: style, points: percentiles(h)})
		bodies = append(bodies, curve{rung: r.Rung, style: style, points: columns(h), area: true})
		low, high = min(low, microseconds(h.Quantile(0.001))), max(high, microseconds(h.Quantile(0.998)))
	}
	if len(tails) == 0 {
		return nil
	}
	where := placed(m)
	slowest := max(most(tails, func(p point) float64 { return p.y }), high)
	x := logarithmic(low*0.9, high*1.1, "round trip, microseconds, logarithmic")
	for i := range bodies {
		bodies[i].points = within(bodies[i].points, x)
	}
	y := linear(most(bodies, func(p point) float64 { return p.y }), "% of the round trips")
	return []card{
		{Title: "Histogram, ends " + where, Legend: legend(bodies), Chart: draw(x, y, bodies, "Histogram of round trips, ends "+where)},
		{Title: "Percentiles, ends " + where, Legend: legend(tails), Chart: draw(percentileAxis(tails),
			logarithmic(low*0.9, slowest*1.1, "microseconds, logarithmic"), tails, "Percentiles of round trips, ends "+where)},
	}
}

// within returns the points that lie on the axis.
func within(l []point, a axis) (kept []point) {
	for _, p := range l {
		if p.x >= a.from && p.x <= a.to {
			kept = append(kept, p)
		}
	}
	return kept
}
