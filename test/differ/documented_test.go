package differ

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestReasonsAreDocumented compares the reasons with the rows of the documents' tables.
func TestReasonsAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/requirements.md")
	if err != nil {
		t.Fatal(err)
	}
	for heading, want := range map[string][]string{
		"Differences from the kernel's vxlan":    words(reasons()),
		"Differences from flannel's udp backend": words(flannelReasons()),
	} {
		_, section, found := strings.Cut(string(b), "\n## "+heading+"\n")
		if !found {
			t.Errorf("docs/requirements.md has no heading %q", heading)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		var rows []string
		for _, m := range regexp.MustCompile(`(?m)^\| \*\*([^*]+)\*\* \|`).FindAllStringSubmatch(section, -1) {
			rows = append(rows, m[1])
		}
		slices.Sort(rows)
		if !slices.Equal(rows, want) {
			t.Errorf("%s: the page explains %q, and the test knows %q", heading, rows, want)
		}
	}
}

func words[R ~string](l []R) (w []string) {
	for _, r := range l {
		w = append(w, string(r))
	}
	slices.Sort(w)
	return w
}
