// Package refdoc writes docs/reference from what the code declares.
//
//	go generate ./cmd/weftd/internal/refdoc
package refdoc

import (
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weft/cmd/internal/control"
	"weft/cmd/internal/doctor"
	"weft/cmd/internal/events"
	"weft/cmd/internal/options"
	"weft/cmd/weftd/internal/ops"
	"weft/lease"
	"weft/routing"
	"weft/tunnel/port"
)

//go:generate go test -count=1 -run TestReference . -args -update

var update = flag.Bool("update", false, "write docs/reference")

const root = "../../../../"

// TestReference fails if a page of docs/reference is not what the code declares.
func TestReference(t *testing.T) {
	for name, page := range map[string]func(*testing.T) string{
		"flags": flags, "keys": keys, "metrics": metrics, "events": kinds, "reasons": reasons,
	} {
		file := filepath.Join(root, "docs/reference", name+".md")
		want := "<!-- go generate ./cmd/weftd/internal/refdoc writes this page. -->\n" + page(t)
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s is not current (%v): go generate ./cmd/weftd/internal/refdoc", file, err)
		}
	}
}

// table returns a table in Markdown. A row with an empty last cell fails, since nobody explained it.
func table(t *testing.T, head string, rows [][]string) string {
	columns := strings.Split(head, ", ")
	out := "\n| " + strings.Join(columns, " | ") + " |\n|" + strings.Repeat("---|", len(columns)) + "\n"
	for _, r := range rows {
		if r[len(r)-1] == "" {
			t.Errorf("nothing explains %s", r[0])
		}
		out += "| " + strings.Join(r, " | ") + " |\n"
	}
	return out
}

func code(s string) string { return "`" + s + "`" }

func flags(t *testing.T) string {
	var rows [][]string
	for _, f := range options.Flags() {
		name, value := code("--"+f.Name), f.DefValue
		_, usage := flag.UnquoteUsage(f.Flag)
		if f.Own {
			name += " [weft]"
		}
		if value == "" || value == "false" {
			value = "-"
		}
		rows = append(rows, []string{name, value, cmp.Or(f.Effect.String(), "-"), usage})
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return `# Flags of weftd

Each flag may come from a variable too: ` + "`--cache-dir` from `WEFTD_CACHE_DIR`" + `,
and flanneld's also from ` + "`FLANNELD_…`" + `. flanneld does not have those marked [weft].
The third column says when a change is in force after ` + "`weft reload`" + `.
The other commands describe their flags with ` + "`--help`" + `.
` + table(t, "flag, default, after a reload, meaning", rows)
}

func keys(t *testing.T) string {
	var rows [][]string
	for _, k := range routing.BuiltIn().KeyHelps() {
		types := cmp.Or(strings.Join(k.Types, ", "), "all")
		rows = append(rows, []string{code(k.Name), types, k.Default, k.Meaning})
	}
	return `# Keys of the network configuration

Keys are read in any case. Type ` + "`auto` with `Encrypt` reads those of `wireguard`" + ` too.
` + table(t, "key, types, default, meaning", rows)
}

func metrics(t *testing.T) string {
	var rows, alerts [][]string
	for _, m := range ops.Metrics() {
		name := m.Name
		if len(m.Labels) > 0 {
			name += "{" + strings.Join(m.Labels, ",") + "}"
		}
		rows = append(rows, []string{code(name), strings.ToLower(m.Kind.ToDTO().String()), m.Help})
	}
	declared := regexp.MustCompile(`(?s)- alert: (\w+).*?for: (\w+).*?severity: (\w+)`)
	rules := read(t, "cmd/weftd/deploy/chart/weft/monitoring/rules.yaml")
	for _, m := range declared.FindAllStringSubmatch(rules, -1) {
		alerts = append(alerts, []string{code(m[1]), m[2], m[3]})
	}
	return `# Metrics

Counters begin at zero when weftd starts. Packets are inner packets:
what pods send, without the tunnel's headers.
` + table(t, "metric, type, meaning", rows) + "\n## Alerts\n" + table(t, "alert, after, severity", alerts)
}

func kinds(t *testing.T) string {
	said := map[string]string{}
	declared := regexp.MustCompile(`(?m)((?:^\t// .*\n)+)^\t\w+ .*Kind = "(\w+)"$`)
	for _, file := range []string{
		"cmd/internal/events/kind.go", "lease/events.go", "tunnel/port/events.go", "routing/event/event.go",
	} {
		for _, m := range declared.FindAllStringSubmatch(read(t, file), -1) {
			said[m[2]] = strings.Join(strings.Fields(strings.ReplaceAll(m[1], "// ", "")), " ")
		}
	}
	var rows [][]string
	for _, k := range events.Kinds() {
		rows = append(rows, []string{code(k), said[k]})
		delete(said, k)
	}
	if len(said) > 0 {
		t.Errorf("events.Kinds lacks %v", said)
	}
	return "# Events\n" + table(t, "kind, what happened", rows)
}

func reasons(t *testing.T) string {
	var drops, codes, rejected, checks [][]string
	for r := range port.NumDropReasons {
		drops = append(drops, []string{code(r.String()), r.Sentence()})
	}
	declared := regexp.MustCompile(`(?m)^\t\w+ +Code = "(\w+)" +// (.+)$`)
	for _, m := range declared.FindAllStringSubmatch(read(t, "cmd/internal/control/code.go"), -1) {
		codes = append(codes, []string{code(m[1]), m[2]})
	}
	if len(codes) != control.NumCodes() {
		t.Errorf("%d of %d codes have a comment", len(codes), control.NumCodes())
	}
	for _, r := range lease.RejectReasons() {
		rejected = append(rejected, []string{code(string(r)), r.Sentence()})
	}
	for _, c := range doctor.Checks() {
		checks = append(checks, []string{code(c.ID), c.Looks})
	}
	return "# Reasons and checks\n\n## Drops\n\n" +
		"`weft_dropped_packets_total`, `weft peers` and `weft capture --dropped` have these reasons.\n" +
		table(t, "reason, meaning", drops) + "\n## Readiness\n\n" +
		"`weft status --json` has reasons in `notReadyCodes` and notes in `noteCodes`.\n" +
		table(t, "code, meaning", codes) + "\n## Records that are not used\n\n" +
		"`weft lease list` and `weft_records_rejected` have these reasons.\n" +
		table(t, "reason, meaning", rejected) + "\n## Checks of weft doctor\n" + table(t, "check, looks at", checks)
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(root + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
