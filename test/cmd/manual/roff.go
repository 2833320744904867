package main

import (
	"fmt"
	"strings"
)

// page is a manual page in the making, in roff with the macros of man(7).
type page struct {
	name string // weft-peers.1
	strings.Builder
}

func (m maker) page(name, section, short string) *page {
	p := &page{name: name + "." + section}
	fmt.Fprintf(p, ".TH %s %s %q %q %q\n", strings.ToUpper(name), section, m.date, "weft "+m.version, "weft")
	p.section("NAME")
	fmt.Fprintf(p, "%s \\- %s\n", escape(name), escape(short))
	return p
}

func (p *page) section(heading string) { fmt.Fprintf(p, ".SH %s\n", heading) }

// literal writes lines as they are.
func (p *page) literal(lines []string) {
	p.WriteString(".nf\n")
	for _, l := range lines {
		p.WriteString(escape(l) + "\n")
	}
	p.WriteString(".fi\n")
}

// paragraphs writes text, filled. A line that is indented stays as it is.
func (p *page) paragraphs(texts []string) {
	for _, text := range texts {
		p.WriteString(".PP\n")
		for line := range strings.Lines(text) {
			line = strings.TrimRight(line, "\n")
			if strings.HasPrefix(line, " ") {
				p.literal([]string{line})
				continue
			}
			p.WriteString(escape(line) + "\n")
		}
	}
}

// tagged writes a term and what it means.
func (p *page) tagged(term, text string) {
	fmt.Fprintf(p, ".TP\n\\fB%s\\fR\n%s\n", escape(term), escape(text))
}

// escape makes text mean itself in roff: no escape sequence, no request at the beginning of a line, each
// minus a minus, and no character that wants an encoding.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	for _, r := range text {
		if r > 126 {
			text = strings.ReplaceAll(text, string(r), fmt.Sprintf(`\[u%04X]`, r))
		}
	}
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") || text == "" {
		return `\&` + text
	}
	return text
}
