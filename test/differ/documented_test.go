package differ

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestReasonsAreDocumented compares the reasons with the rows of the documents' table.
func TestReasonsAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/requirements.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	at := regexp.MustCompile(`(?m)^## Differences from the kernel's vxlan$`).FindStringIndex(page)
	if at == nil {
		t.Fatal("docs/requirements.md has no heading for the differences from the kernel's vxlan")
	}
	var rows []reason
	for _, m := range regexp.MustCompile(`(?m)^\| \*\*([^*]+)\*\* \|`).FindAllStringSubmatch(page[at[1]:], -1) {
		rows = append(rows, reason(m[1]))
	}
	want := reasons()
	slices.Sort(want)
	slices.Sort(rows)
	if !slices.Equal(rows, want) {
		t.Errorf("docs/requirements.md explains %q, and the tests know %q", rows, want)
	}
}
