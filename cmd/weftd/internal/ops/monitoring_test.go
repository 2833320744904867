package ops

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const monitoring = "../../deploy/chart/weft/monitoring/"

// TestRulesAndDashboardNameMetrics: each metric in an expression of the alerts and of the dashboard is
// exported, with the labels that the expression selects or groups by; those of recording rules are recorded.
func TestRulesAndDashboardNameMetrics(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(monitoring + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	rules := read("rules.yaml")
	exprs := regexp.MustCompile(`(?ms)^ +expr: .*?^ +(?:- (?:record|alert)|for):`).FindAllString(rules, -1)
	if len(exprs) < 25 {
		t.Errorf("%d expressions of rules", len(exprs))
	}
	var d struct {
		Panels []struct {
			Title, Description, Type string
			Targets                  []struct{ Expr string }
		}
		Templating struct{ List []struct{ Definition string } }
	}
	if err := json.Unmarshal([]byte(read("dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		if p.Type != "row" && (p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("panel %q has no description or shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			exprs = append(exprs, target.Expr)
		}
	}
	for _, v := range d.Templating.List {
		exprs = append(exprs, v.Definition)
	}
	labels := map[string][]string{}
	for _, m := range Metrics() {
		labels[m.Name] = append(m.Labels, "job", "instance")
	}
	for _, e := range exprs {
		for _, m := range regexp.MustCompile(
			`([a-z_]+:)?\b(weft_[a-z0-9_]+)(:[a-z0-9_]+)?(\{[^}]*\})?`).FindAllStringSubmatch(e, -1) {
			if m[1] != "" {
				if !strings.Contains(rules, "record: "+m[1]+m[2]+m[3]+"\n") {
					t.Errorf("nothing records %s, in %s", m[0], e)
				}
				continue
			}
			have, ok := labels[m[2]]
			if !ok {
				t.Errorf("no metric %s, in %s", m[2], e)
				continue
			}
			for _, l := range regexp.MustCompile(`(\w+)(?:=|!)`).FindAllStringSubmatch(m[4], -1) {
				if !slices.Contains(have, l[1]) {
					t.Errorf("%s has no label %s, in %s", m[2], l[1], e)
				}
			}
		}
	}
}
