package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Gap is a round of a rung that was to be measured and could not be.
type Gap struct {
	Rung string `json:"rung"`
	// Round is counted from 1.
	Round int `json:"round"`
	// Attempts is how often it was tried; 0 if it was not, since the rung had broken down before.
	Attempts int `json:"attempts"`
	// Reason is one line.
	Reason string `json:"reason"`
}

// AddGap adds a gap in the place of a sample. Its measure must be in the document.
func (d *Document) AddGap(measure string, g Gap) {
	g.Reason = strings.Join(strings.Fields(g.Reason), " ")
	m := d.Measure(measure)
	m.Gaps = append(m.Gaps, g)
}

// gapsBefore returns how many rounds of a rung before that one, of which the first is 0, are gaps.
func (m *Measure) gapsBefore(rung string, round int) (n int) {
	for _, g := range m.Gaps {
		if g.Rung == rung && g.Round-1 < round {
			n++
		}
	}
	return n
}

// at returns the value of a figure of r in a round, of which the first is 0. There is none in a gap.
func (m *Measure) at(r *Result, f *Figure, round int) (float64, bool) {
	if slices.ContainsFunc(m.Gaps, func(g Gap) bool { return g.Rung == r.Rung && g.Round-1 == round }) {
		return 0, false
	}
	i := round - m.gapsBefore(r.Rung, round)
	if i >= len(f.Rounds) {
		return 0, false
	}
	return f.Rounds[i], true
}

// nothing is what stands in the place of a rung's figure if it has no result.
func (m *Measure) nothing(rung string) string {
	if m.gapsBefore(rung, math.MaxInt) > 0 {
		return "gap"
	}
	return "–"
}

// unit returns that of the first figure; empty if nothing was measured.
func (m *Measure) unit() string {
	if len(m.Results) == 0 {
		return ""
	}
	return m.Results[0].Figures[0].Unit
}

// gaps says of every gap in words where it is, and why. Those of a rung that had broken down before are one.
func (d *Document) gaps() (l []string) {
	untried := map[string][]Gap{}
	for _, m := range d.Measures {
		for _, g := range m.Gaps {
			if g.Attempts == 0 {
				untried[g.Rung] = append(untried[g.Rung], g)
				continue
			}
			l = append(l, fmt.Sprintf("%s of %s, round %d, tried %s: %s", strings.TrimPrefix(m.Key, "measure="),
				g.Rung, g.Round, plural(g.Attempts, "time"), g.Reason))
		}
	}
	for _, rung := range slices.Sorted(maps.Keys(untried)) {
		l = append(l, fmt.Sprintf("%s more of %s: %s", plural(len(untried[rung]), "measurement"), rung,
			untried[rung][0].Reason))
	}
	return l
}

// missed says how many of the rung's rounds are gaps, and is empty if none is.
func (m *Measure) missed(r *Result) string {
	n := m.gapsBefore(r.Rung, math.MaxInt)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("(%d of %d rounds missing)", n, n+len(r.Figures[0].Rounds))
}
