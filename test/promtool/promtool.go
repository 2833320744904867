// Package promtool has Prometheus' own tool evaluate the project's alerting rules over series that a test
// gives: made up ones, or what weftd's /metrics said.
package promtool

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/test/netns"
)

// Job is the job of all series.
const Job = "weft"

// Case is one set of series and the alerts that it is to raise.
type Case struct {
	Name string
	// Series has values in promtool's notation, such as "1x30", by name and labels, of which job="weft" is one.
	// They are a minute apart.
	Series map[string]string
	// At is when the alerts are looked at.
	At time.Duration
	// Want are the names of the alerts that fire then: all of them, and no other.
	Want []string
}

// Run runs promtool. The Debian package prometheus has it.
func Run(t *testing.T, args ...string) {
	t.Helper()
	netns.Programs(t, "promtool:prometheus")
	if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Check evaluates the rules in the file over each case, and fails the test if other alerts fire than it says.
// The cases are jobs of one Prometheus, since a new one takes promtool more than a second; those of many
// hours have one of their own.
func Check(t *testing.T, rules string, cases []Case) {
	t.Helper()
	rules, err := filepath.Abs(rules)
	if err != nil {
		t.Fatal(err)
	}
	together, apart := []string{}, []string{}
	input, expect := "", ""
	for i, c := range cases {
		job := fmt.Sprintf("%s %d", c.Name, i)
		series := ""
		for _, name := range slices.Sorted(maps.Keys(c.Series)) {
			named := strings.Replace(name, fmt.Sprintf("job=%q", Job), fmt.Sprintf("job=%q", job), 1)
			series += fmt.Sprintf("      - {series: %q, values: %q}\n", named, c.Series[name])
		}
		query := fmt.Sprintf("sum by (alertname) (ALERTS{alertstate=\"firing\",job=%q}) ^ 0", job)
		fire := fmt.Sprintf("      - expr: %q\n        eval_time: %s\n        exp_samples: [", query, c.At)
		for _, name := range c.Want {
			fire += fmt.Sprintf("{labels: %q, value: 1}, ", fmt.Sprintf("{alertname=%q}", name))
		}
		fire += "]\n"
		if c.At > 5*time.Hour {
			apart = append(apart, testOf(series, fire))
			continue
		}
		input, expect = input+series, expect+fire
	}
	if input != "" {
		together = append(together, testOf(input, expect))
	}
	text := fmt.Sprintf("rule_files: [%q]\nevaluation_interval: 1m\ntests:\n",
		rules) + strings.Join(append(together, apart...), "")
	file := filepath.Join(t.TempDir(), "tests.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	Run(t, "test", "rules", file)
}

func testOf(input, expect string) string {
	return "  - interval: 1m\n    input_series:\n" + input + "    promql_expr_test:\n" + expect
}

// Scraped adds to series what a text of /metrics says, as a Prometheus would have scraped it from instance,
// for as many minutes as are given.
func Scraped(series map[string]string, instance, text string, minutes int) {
	target := fmt.Sprintf("instance=%q,job=%q", instance, Job)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' || strings.HasPrefix(line, "go_") || strings.HasPrefix(line, "process_") {
			continue // none of the rules looks at these, and each series costs promtool time
		}
		name, labels, _ := strings.Cut(strings.TrimSuffix(line[:at], "}"), "{")
		all := strings.TrimSuffix(target+","+labels, ",")
		series[name+"{"+all+"}"] += fmt.Sprintf(" %sx%d", line[at+1:], minutes-1)
	}
	series["up{"+target+"}"] += fmt.Sprintf(" 1x%d", minutes-1)
}
