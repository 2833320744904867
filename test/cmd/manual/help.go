package main

import (
	"regexp"
	"strings"
)

// help is a command's --help, as cobra lays it out.
type help struct {
	intro    []string // paragraphs before the first heading
	sections map[string][]string
}

// section returns the lines below the heading.
func (h help) section(heading string) []string { return h.sections[heading] }

// parseHelp takes a text apart at its headings: lines that begin at the left and end with a colon.
func parseHelp(text string) help {
	h := help{sections: map[string][]string{}}
	heading := regexp.MustCompile(
		`^(Usage|Available Commands|Examples|Flags|Global Flags|Aliases|Additional help topics):$`)
	in, before := "", []string{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch m := heading.FindStringSubmatch(line); {
		case m != nil:
			in = m[1]
		case in == "":
			before = append(before, line)
		case strings.HasPrefix(line, `Use "`):
			in = "after"
		default:
			h.sections[in] = append(h.sections[in], line)
		}
	}
	for name, lines := range h.sections {
		h.sections[name] = strings.Split(strings.Trim(strings.Join(lines, "\n"), "\n"), "\n")
	}
	h.intro = strings.Split(strings.TrimSpace(strings.Join(before, "\n")), "\n\n")
	return h
}

// item is a line of a list: a name, and what it means.
type item struct{ name, text string }

// items reads a list, in which two blanks and more separate the name from the text.
func items(lines []string) (out []item) {
	between := regexp.MustCompile(` {2,}`)
	for _, line := range lines {
		if strings.TrimSpace(line) == "" {
			continue
		}
		parts := between.Split(strings.TrimSpace(line), 2)
		if len(parts) == 1 {
			parts = append(parts, "")
		}
		out = append(out, item{parts[0], parts[1]})
	}
	return out
}
