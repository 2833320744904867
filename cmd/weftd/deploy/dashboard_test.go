package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weft/test/promtool"
)

// source is where a panel's data come from.
type source struct{ Type, UID string }

type target struct {
	Expr, RefID, LegendFormat string
	Instant, Range            bool
	Datasource                source
}

type panel struct {
	ID          int
	Type, Title string
	Datasource  source
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []target
}

// dashboard is what Grafana reads of the file, as far as it is looked at here.
type dashboard struct {
	UID           string
	ID            *int
	SchemaVersion int
	Panels        []panel
	Templating    struct {
		List []struct {
			Name, Type string
			Query      any
			Datasource source
		}
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	b, err := os.ReadFile("chart/weft/monitoring/dashboard.json")
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Grafana takes a file with a schema that it can migrate, without an id of another installation, whose panels
// have ids of their own, do not lie upon each other in its 24 columns, and ask the data source that the
// reader chooses.
func TestGrafanaTakesTheDashboard(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	if !regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`).MatchString(d.UID) || d.ID != nil || d.SchemaVersion < 36 ||
		d.SchemaVersion > 41 {
		t.Errorf("uid %q, id %v, schema %d", d.UID, d.ID, d.SchemaVersion)
	}
	variables := map[string]bool{"__rate_interval": true}
	chosen := source{"prometheus", "${datasource}"}
	for _, v := range d.Templating.List {
		if v.Type == "datasource" && v.Query != "prometheus" || v.Type == "query" && v.Datasource != chosen {
			t.Errorf("variable %s: %v of %+v", v.Name, v.Query, v.Datasource)
		}
		variables[v.Name] = true
	}
	if len(d.Templating.List) == 0 || d.Templating.List[0].Name != "datasource" ||
		d.Templating.List[0].Type != "datasource" {
		t.Error("the data source is not the first variable, on which the others depend")
	}
	units := map[string]bool{"short": true, "bps": true, "pps": true, "percentunit": true, "s": true,
		"bytes": true, "decbytes": true}
	ids, taken := map[int]string{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if other, twice := ids[p.ID]; twice || p.ID <= 0 {
			t.Errorf("%q has id %d, as %q", p.Title, p.ID, other)
		}
		ids[p.ID] = p.Title
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x < 0 || x > 23 {
					t.Fatalf("%q lies upon %q, or beside the grid, at %d,%d", p.Title, other, x, y)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource != chosen || !units[p.FieldConfig.Defaults.Unit] {
			t.Errorf("%q: data of %+v, unit %q", p.Title, p.Datasource, p.FieldConfig.Defaults.Unit)
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if q.RefID == "" || refs[q.RefID] || q.Datasource != chosen || q.Instant == q.Range {
				t.Errorf("%q: %+v", p.Title, q)
			}
			refs[q.RefID] = true
			for _, v := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(q.Expr, -1) {
				if !variables[v[1]] {
					t.Errorf("%q: nothing sets $%s", p.Title, v[1])
				}
			}
		}
	}
}

// Each panel shows something for a node that was scraped, with all labels of its legend. The series are those
// of testdata/scrape.txt, with counters that grow; what a panel shows only in trouble is asked for in health
// too.
func TestEveryPanelShowsWhatWasScraped(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/scrape.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	out.WriteString("evaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n")
	const by = `instance="node1",job="weft"`
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, labels, _ := strings.Cut(strings.TrimSuffix(line[:at], "}"), "{")
		grow := ""
		if strings.HasSuffix(name, "_total") {
			grow = "+60"
		}
		fmt.Fprintf(&out, "      - {series: %q, values: %q}\n", name+"{"+strings.TrimSuffix(by+","+labels, ",")+"}",
			line[at+1:]+grow+"x30")
	}
	out.WriteString("    promql_expr_test:\n")
	variables := strings.NewReplacer("$__rate_interval", "4m", `=~"$job"`, `=~"(weft|other)"`,
		`=~"$instance"`, `=~".+"`)
	quiet := strings.NewReplacer("> 0", ">= 0", "< on", "<= on")
	exprs := 0
	for _, p := range readDashboard(t).Panels {
		for _, q := range p.Targets {
			expr := quiet.Replace(variables.Replace(q.Expr))
			for _, l := range append(regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.LegendFormat, -1),
				nil) {
				ask := fmt.Sprintf("count(%s) > bool 0", expr)
				if l != nil {
					ask = fmt.Sprintf(`count(label_replace(%s, "shown", "yes", %q, ".+")) by (shown) > bool 0`, expr, l[1])
				}
				labels := ""
				if l != nil {
					labels = `{shown="yes"}`
				}
				exprs++
				fmt.Fprintf(&out, "      # %s\n      - expr: %q\n        eval_time: 25m\n        exp_samples: "+
					"[{labels: %q, value: 1}]\n", p.Title, ask, labels)
			}
		}
	}
	if exprs < 60 {
		t.Errorf("%d expressions", exprs)
	}
	file := filepath.Join(t.TempDir(), "panels.yaml")
	if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool.Run(t, "test", "rules", file)
}
