package test

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// checkAnchors finds links in Markdown files to headings that are not there. checkDocuments looks at their
// files.
func checkAnchors(t *tree) (faults []string) {
	link := regexp.MustCompile(`\]\(([^):#\s]*)#([^)\s]+)\)`)
	for _, name := range slices.Sorted(maps.Keys(t.files)) {
		if path.Ext(name) != ".md" {
			continue
		}
		for i, line := range strings.Split(t.files[name], "\n") {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				target := name
				if m[1] != "" {
					target = path.Join(path.Dir(name), m[1])
				}
				if text, ok := t.files[target]; ok && path.Ext(target) == ".md" && !anchors(text)[m[2]] {
					faults = append(faults, fmt.Sprintf("%s:%d: %s has no heading #%s", name, i+1, target, m[2]))
				}
			}
		}
	}
	return faults
}

// anchors are the names that GitHub gives to the headings of a text.
func anchors(text string) map[string]bool {
	out, seen, block := map[string]bool{}, map[string]int{}, false
	dropped := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			block = !block
		}
		heading := strings.TrimLeft(line, "#")
		if block || heading == line || !strings.HasPrefix(heading, " ") {
			continue
		}
		heading = regexp.MustCompile(`\]\([^)]*\)`).ReplaceAllString(heading, "")
		name := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""), " ",
			"-")
		if n := seen[name]; n > 0 {
			out[fmt.Sprintf("%s-%d", name, n)] = true
		}
		seen[name]++
		out[name] = true
	}
	return out
}
