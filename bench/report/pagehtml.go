package report

import (
	_ "embed" // the page's style
	"fmt"
	"html"
	"strings"
)

//go:embed page.css
var pageStyle string

// markup is text that is HTML already.
type markup string

// writer makes a page. We do not use html/template: since a template may call any method by its name, the linker would
// have to keep every exported method of every package in the program, which is a quarter of weft.
type writer struct{ strings.Builder }

// add writes format, whose verbs are all %v. Whatever is not markup is escaped, for text and for quoted attributes.
func (w *writer) add(format string, values ...any) {
	for i, v := range values {
		if _, ok := v.(markup); !ok {
			values[i] = html.EscapeString(fmt.Sprint(v))
		}
	}
	fmt.Fprintf(w, format, values...)
}

// addIf is add if is is true, and otherwise nothing.
func (w *writer) addIf(is bool, format string, values ...any) {
	if is {
		w.add(format, values...)
	}
}

// html returns the whole page.
func (p *page) html() string {
	w, d := &writer{}, p.Doc
	w.add(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<title>weft bench, %v</title>
<style>
%v</style>
</head>
<body>
<header>
<h1>weft bench</h1>
`, p.Date, markup(pageStyle))
	w.add("<p class=\"soft\">%v · %v · %v CPUs (%v) · weft %v</p>\n", p.Date, d.Machine.Kernel, d.Machine.CPUs, d.Machine.Model, d.Tool)
	w.add("<p>%v.</p>\n</header>\n<main>\n", d.Topology)
	p.glance(w)
	for _, s := range p.Sections {
		s.html(w)
	}
	p.figures(w)
	p.machine(w)
	w.add("</main>\n<footer>Written by weft %v. The same as data: <code>--json</code>, schema %v version %v.</footer>\n</body>\n</html>\n", d.Tool, d.Schema, d.Version)
	return w.String()
}

// glance writes the table of ratios.
func (p *page) glance(w *writer) {
	if len(p.Glance) == 0 {
		return
	}
	w.add("<section aria-labelledby=\"glance\">\n<h2 id=\"glance\">At a glance</h2>\n")
	if ref := p.Doc.Reference; ref != "" {
		w.add("<p class=\"soft\">Median of the ratios to %v within a round, and the median itself. ▲ better than %v, ▼ worse, ≈ within 5 %%; stronger colour from a quarter on.</p>\n", ref, ref)
	} else {
		w.add("<p class=\"soft\">Medians.</p>\n")
	}
	w.add(`<div class="scroll" tabindex="0" role="region" aria-labelledby="glance"><table>` + "\n" + `<thead><tr><th scope="col">measure</th>`)
	for _, r := range p.Doc.Rungs {
		w.add(`<th scope="col">%v</th>`, r.Name)
	}
	w.add("</tr></thead>\n<tbody>\n")
	for _, row := range p.Glance {
		if row.Wire != "" {
			w.add("<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"%v\">%v</th></tr>\n", 1+len(p.Doc.Rungs), row.Wire)
			continue
		}
		w.add(`<tr><th scope="row">%v<br/><small>%v</small></th>`, row.Title, row.Unit)
		for _, c := range row.Cells {
			w.add("<td")
			w.addIf(c.Class != "", ` class="%v"`, c.Class)
			w.add(">")
			if c.Ratio != "" {
				w.add("<b>%v</b><small>%v</small></td>", c.Ratio, c.Value)
			} else {
				w.add("%v</td>", c.Value)
			}
		}
		w.add("</tr>\n")
	}
	w.add("</tbody></table></div>\n</section>\n")
}

func (s section) html(w *writer) {
	w.add("<section aria-labelledby=\"%v\">\n<h2 id=\"%v\">%v</h2>\n<p class=\"soft\">%v</p>\n<div class=\"grid\">\n", s.ID, s.ID, s.Title, s.Text)
	for _, c := range s.Cards {
		c.html(w)
	}
	w.add("</div>\n</section>\n")
}

func (c card) html(w *writer) {
	w.add(`<div class="card`)
	w.addIf(c.Wide, " wide")
	w.add("\">\n<h3>%v</h3>\n", c.Title)
	if len(c.Bars) > 0 {
		w.add(`<div role="list">`)
		for _, b := range c.Bars {
			b.html(w)
		}
		w.add("</div>")
	}
	w.add("\n")
	if c.Chart != "" {
		w.add(`<ul class="legend">`)
		for _, l := range c.Legend {
			w.add(`<li><svg viewBox="0 0 22 12" aria-hidden="true" class="%v"><path class="curve" d="M0 6H22"/>%v</svg>%v</li>`, l.Colour, l.Mark, l.Name)
		}
		w.add("</ul>\n%v", c.Chart)
	}
	w.add("\n")
	if t := c.Table; t != nil {
		w.add(`<div class="scroll" tabindex="0" role="region" aria-label="%v"><table><thead><tr>`, c.Title)
		for _, h := range t.Head {
			w.add(`<th scope="col">%v</th>`, h)
		}
		w.add("</tr></thead><tbody>\n")
		for _, row := range t.Rows {
			w.add("<tr>")
			for i, v := range row {
				if i == 0 {
					w.add(`<th scope="row">%v</th>`, v)
				} else {
					w.add("<td>%v</td>", v)
				}
			}
			w.add("</tr>\n")
		}
		w.add("</tbody></table></div>")
	}
	w.add("\n</div>\n")
}

func (b bar) html(w *writer) {
	w.add(`<div class="row" role="listitem"><span class="name" title="%v">%v</span><span class="track" aria-hidden="true"><span class="fill %v`, b.About, b.Name, b.Colour)
	w.addIf(b.Cut, " cut")
	w.add(`" style="width:%v%%"></span>`, b.Width)
	w.addIf(b.Part != 0, `<span class="part" style="width:%v%%"></span>`, b.Part)
	w.addIf(b.Reference != 0, `<span class="ref" style="left:%v%%"></span>`, b.Reference)
	w.addIf(b.Spread != 0 && !b.Cut, `<span class="spread" style="left:%v%%;width:%v%%"></span>`, b.Low, b.Spread)
	w.add(`</span><span class="value">%v`, b.Value)
	w.addIf(b.Cut, " – beyond the scale")
	w.add(" <span>%v</span></span></div>\n", b.Also)
}

// figures writes the table of everything that was measured.
func (p *page) figures(w *writer) {
	w.add(`<section aria-labelledby="all">
<h2 id="all">All figures</h2>
<details><summary>Every measure of every rung, with spread</summary>
<div class="scroll" tabindex="0" role="region" aria-labelledby="all"><table>
<thead><tr><th scope="col">rung</th><th scope="col">median</th><th scope="col">min – max</th>`)
	ref, columns := p.Doc.Reference, 4
	if ref != "" {
		columns = 6
		w.add(`<th scope="col">ratio to %v</th><th scope="col">min – max</th>`, ref)
	}
	w.add("<th scope=\"col\" class=\"text\">also (medians)</th></tr></thead>\n")
	for _, g := range p.All {
		w.add("<tbody>\n<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"%v\">%v <code>%v</code></th></tr>\n", columns, g.Title, g.Key)
		for _, r := range g.Rows {
			w.add(`<tr><th scope="row">%v</th><td>%v</td><td>%v</td>`, r.Rung, r.Median, r.Range)
			w.addIf(ref != "", "<td>%v</td><td>%v</td>", r.Ratio, r.RatioRange)
			w.add("<td class=\"text\">%v</td></tr>\n", r.Also)
		}
		w.add("</tbody>\n")
	}
	w.add("</table></div>\n</details>\n</section>\n")
}

// machine writes on which machine and how it was measured.
func (p *page) machine(w *writer) {
	w.add("<section aria-labelledby=\"how\">\n<h2 id=\"how\">The machine, and how it was measured</h2>\n<div class=\"card\"><dl>\n")
	entry := func(name string, what any) { w.add("<dt>%v</dt><dd>%v</dd>\n", name, what) }
	d := p.Doc
	w.add("<dt>command</dt><dd><code>%v</code></dd>\n", d.Command)
	entry("date", p.Date+", "+p.Took)
	entry("machine", d.Machine)
	entry("load", d.Machine.Load())
	if d.Far != nil {
		entry("other machine", d.Far)
	}
	entry("measured", p.Settings)
	for _, l := range d.Wires {
		entry("wire "+l.Name, l.About)
	}
	for _, r := range d.Rungs {
		entry(r.Name, fmt.Sprintf("%v; MTU %d", r.About, r.MTU))
	}
	w.add("</dl></div>\n")
	if gaps := d.gaps(); len(gaps) > 0 {
		w.add("<h2>What could not be measured</h2>\n<ul class=\"notes\">\n")
		for _, g := range gaps {
			w.add("<li>%v</li>\n", g)
		}
		w.add("</ul>\n")
	}
	w.add("<h2>What to know, and what this cannot show</h2>\n<ul class=\"notes\">\n")
	for _, n := range d.Notes {
		w.add("<li>%v</li>\n", n)
	}
	w.add("</ul>\n</section>\n")
}
