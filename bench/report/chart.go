package report

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"weft/tunnel"
)

// A chart's measures in SVG units, each of which is about a pixel on a telephone.
const (
	chartWidth  = 440.0
	chartHeight = 288.0
	left, right = 52.0, 12.0
	top, bottom = 30.0, 44.0
)

// axis maps values to positions. With log set it is logarithmic, and shows what is below from at its lower end.
type axis struct {
	from, to float64 // values
	log      bool
	ticks    []tick
	title    string
}

type tick struct {
	at    float64
	label string
}

// share returns where v lies between the axis's ends, 0 to 1.
func (a axis) share(v float64) float64 {
	if a.log {
		v, a.from, a.to = math.Log(max(v, a.from)), math.Log(a.from), math.Log(a.to)
	}
	if a.to <= a.from {
		return 0
	}
	return min(max((v-a.from)/(a.to-a.from), 0), 1)
}

func (a axis) x(v float64) float64 { return left + a.share(v)*(chartWidth-left-right) }
func (a axis) y(v float64) float64 { return chartHeight - bottom - a.share(v)*(chartHeight-top-bottom) }

// linear makes an axis from 0 to a round number not below most, with four to six ticks.
func linear(most float64, title string) axis {
	if most <= 0 {
		most = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(most/4)))
	for _, f := range []float64{1, 2, 2.5, 5, 10} {
		if step*f*5 >= most {
			step *= f
			break
		}
	}
	a := axis{to: math.Ceil(most/step) * step, title: title}
	for i := 0; float64(i)*step <= a.to*1.001; i++ {
		a.ticks = append(a.ticks, tick{float64(i) * step, short(float64(i) * step)})
	}
	return a
}

// logarithmic makes an axis that contains least and most, with ticks at 1, 2 and 5 of each decade.
func logarithmic(least, most float64, title string) axis {
	least = max(least, 1e-3)
	a := axis{from: least, to: max(most, least*1.5), log: true, title: title}
	for decade := math.Floor(math.Log10(a.from)); math.Pow(10, decade) <= a.to; decade++ {
		for _, f := range []float64{1, 2, 5} {
			if v := f * math.Pow(10, decade); v >= a.from*0.999 && v <= a.to*1.001 {
				a.ticks = append(a.ticks, tick{v, short(v)})
			}
		}
	}
	if len(a.ticks) > 9 { // too many to read: keep the decades
		a.ticks = slices.DeleteFunc(a.ticks, func(t tick) bool {
			l := math.Log10(t.at)
			return math.Abs(l-math.Round(l)) > 1e-9
		})
	}
	return a
}

// short writes a number for a tick: 0.5, 20, 1500.
func short(v float64) string { return fmt.Sprintf("%.5g", v) }

// point is a point of a curve. low and high are drawn if they differ; note is shown on hovering.
type point struct {
	x, y, low, high float64
	note            string
}

// curve is the curve of one rung.
type curve struct {
	rung   string
	style  style
	points []point
	// dots says whether each point is marked, area whether the space below the curve is filled.
	dots, area bool
}

// style says how a rung is drawn in every chart: in a colour of the style sheet, with a mark.
type style struct {
	Colour string
	mark   int
}

// styleOf returns a fixed style for each rung that it knows, so that two pages can be compared.
func styleOf(rung string, index int) style {
	known := []string{"veth", "host-gw", "vxlan", tunnel.PathPortable.String(), tunnel.PathSocket.String(), tunnel.PathRaw.String(), "auto", "wireguard-go"}
	if i := slices.Index(known, rung); i >= 0 {
		index = i
	} else {
		index = (index + 4) % 7
	}
	return style{fmt.Sprintf("k%d", index), index}
}

// drawMark draws a shape around a point, so that curves can be told apart without their colours.
func (l style) drawMark(x, y float64) string {
	const r = 4.0
	at := func(format string, v ...any) string { return fmt.Sprintf(`<path class="dot" d="`+format+`"/>`, v...) }
	switch l.mark {
	case 1: // square
		return at("M%.1f %.1fh%.1fv%.1fh-%.1fz", x-r+0.5, y-r+0.5, 2*r-1, 2*r-1, 2*r-1)
	case 2: // triangle
		return at("M%.1f %.1fl%.1f %.1fh-%.1fz", x, y-r-1, r+1, 2*r, 2*r+2)
	case 3: // diamond
		return at("M%.1f %.1fl%.1f %.1fl-%.1f %.1fl-%.1f -%.1fz", x, y-r-1, r+1, r+1, r+1, r+1, r+1, r+1)
	case 5: // star of four
		return at("M%.1f %.1fl2 4l4 2l-4 2l-2 4l-2 -4l-4 -2l4 -2z", x, y-6)
	case 7: // bar
		return at("M%.1f %.1fh%.1fv%.1fh-%.1fz", x-r-1, y-r/2, 2*r+2, r, 2*r+2)
	case 0: // upside-down triangle
		return at("M%.1f %.1fl%.1f -%.1fh-%.1fz", x, y+r+1, r+1, 2*r, 2*r+2)
	}
	return fmt.Sprintf(`<circle class="dot" cx="%.1f" cy="%.1f" r="4.5"/>`, x, y)
}

// draw returns the chart as SVG. label says in words what it shows.
func draw(x, y axis, curves []curve, label string) markup {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %g %g" role="img" aria-label="%s">`, chartWidth, chartHeight, html.EscapeString(label))
	base := chartHeight - bottom
	for _, t := range y.ticks {
		at := y.y(t.at)
		fmt.Fprintf(&b, `<path class="axis" d="M%g %.1fH%g"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`, left, at, chartWidth-right, left-7, at+4, html.EscapeString(t.label))
	}
	for _, t := range x.ticks {
		at, anchor := x.x(t.at), "middle"
		if at > chartWidth-right-20 && len(t.label) > 4 {
			anchor = "end" // else it would be cut off
		}
		fmt.Fprintf(&b, `<path class="axis" d="M%.1f %gv5"/><text x="%.1f" y="%g" text-anchor="%s">%s</text>`, at, base, at, base+18, anchor, html.EscapeString(t.label))
	}
	fmt.Fprintf(&b, `<text x="4" y="12">%s</text><text x="%g" y="%g" text-anchor="end">%s</text>`, html.EscapeString(y.title), chartWidth-right, chartHeight-6, html.EscapeString(x.title))
	for _, c := range curves {
		c.draw(&b, x, y)
	}
	b.WriteString("</svg>")
	return markup(b.String())
}

func (c curve) draw(b *strings.Builder, x, y axis) {
	if len(c.points) == 0 {
		return
	}
	var d strings.Builder
	for i, p := range c.points {
		fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(i, 1)], x.x(p.x), y.y(p.y))
	}
	fmt.Fprintf(b, `<g class="%s"><title>%s</title>`, c.style.Colour, html.EscapeString(c.rung))
	if c.area {
		first, last := c.points[0], c.points[len(c.points)-1]
		fmt.Fprintf(b, `<path class="area" d="%sL%.1f %.1fL%.1f %.1fz"/>`, d.String(), x.x(last.x), y.y(0), x.x(first.x), y.y(0))
	}
	fmt.Fprintf(b, `<path class="curve" d="%s"/>`, d.String())
	for _, p := range c.points {
		if p.high > p.low {
			fmt.Fprintf(b, `<path class="bar" d="M%.1f %.1fV%.1f"/>`, x.x(p.x), y.y(p.low), y.y(p.high))
		}
		if c.dots {
			fmt.Fprintf(b, `<g>%s<title>%s</title></g>`, c.style.drawMark(x.x(p.x), y.y(p.y)), html.EscapeString(p.note))
		}
	}
	b.WriteString("</g>")
}

// most returns the largest value that f has for any point of the curves.
func most(curves []curve, f func(point) float64) (n float64) {
	for _, c := range curves {
		for _, p := range c.points {
			n = max(n, f(p))
		}
	}
	return n
}

// byFrame sorts measures by their frames.
func byFrame(l []*Measure) {
	slices.SortStableFunc(l, func(a, b *Measure) int { return cmp.Compare(a.Frame, b.Frame) })
}
