package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"weft/cmd/internal/diagnose"
)

// SchemaVersion is the version of Report's JSON. A field that goes, or means something else, makes another
// one.
const SchemaVersion = 1

// Verdict is what a check says of what it looked at.
type Verdict string

// The verdicts, from the best to the worst. Unknown says that the check could not look.
const (
	OK      Verdict = "ok"
	Unknown Verdict = "unknown"
	Note    Verdict = "note"
	Warning Verdict = "warning"
	Fault   Verdict = "fault"
)

// rank orders verdicts, the worst first.
func (v Verdict) rank() int { return slices.Index([]Verdict{Fault, Warning, Note, Unknown, OK}, v) }

// Finding is what one check found out about one thing.
type Finding struct {
	// ID is the check's.
	ID      ID      `json:"id"`
	Verdict Verdict `json:"verdict"`
	// Subject is what was looked at: a file, a link, an endpoint, a peer; empty for this host.
	Subject string `json:"subject,omitempty"`
	// Found says what is so, in one sentence.
	Found string `json:"found"`
	// Cause is the likely cause, or the cause if Observed, and Remedy what to do, with a command if there is
	// one. Of a peer that does not answer there is one only if it was observed; else Open has those that are not
	// excluded, each with the command that tells.
	Cause    string           `json:"cause,omitempty"`
	Observed bool             `json:"observed,omitempty"`
	Open     []diagnose.Cause `json:"open,omitempty"`
	Remedy   string           `json:"remedy,omitempty"`
	// fact is what was observed, for Found.
	fact string
}

// follows takes over what diagnose makes of the same.
func (f Finding) follows(why diagnose.Finding) Finding {
	f.fact = why.Fact
	if c := why.Cause; c != nil {
		f.Cause, f.Observed, f.Remedy = c.Cause, true, c.Where+": "+cmp.Or(c.Remedy, c.Command)
	}
	f.Open = why.Open
	return f
}

// findOut begins a remedy that tells open causes apart.
const findOut = "find out which: "

// remedyOf is how to tell the open causes apart.
func remedyOf(open []diagnose.Cause) string {
	var parts []string
	for _, c := range open {
		parts = append(parts, fmt.Sprintf("%s (%s: %s)", c.Cause, c.Where, c.Command))
	}
	return findOut + strings.Join(parts, "; or ")
}

// Ends says that Remedy ends what was found, and not only tells its causes apart.
func (f Finding) Ends() bool { return f.Remedy != "" && !strings.Contains(f.Remedy, findOut) }

// String is the finding on one line.
func (f Finding) String() string {
	s := f.Found
	if f.Subject != "" {
		s = f.Subject + ": " + s
	}
	if f.Cause != "" {
		s += ": " + f.Cause
	}
	if f.Remedy != "" {
		s += "; " + f.Remedy
	}
	return s
}

// Report is what weft doctor --json prints.
type Report struct {
	SchemaVersion int       `json:"schema_version"`
	At            time.Time `json:"at"`
	// Healthy says that no finding is a fault.
	Healthy bool `json:"healthy"`
	// Settings says where the settings of weftd were read.
	Settings string    `json:"settings"`
	Findings []Finding `json:"findings"`
}

// Examine runs the checks over f. Findings are in the checks' order.
func Examine(f *Facts) Report {
	r := Report{SchemaVersion: SchemaVersion, At: f.Now, Healthy: true, Settings: f.Settings.From}
	for _, c := range Checks() {
		r.Findings = append(r.Findings, c.examine(f)...)
	}
	for _, x := range r.Findings {
		r.Healthy = r.Healthy && x.Verdict != Fault
	}
	return r
}

// tunInOtherNetns reports whether the TUN is in another network namespace than the underlay, which the facts
// are of.
func (f *Facts) tunInOtherNetns() bool {
	r := f.Settings.Rootless
	return r.On || r.TUNNetns != "" || f.Daemon.Status.Namespace != nil
}

// ExamineStart runs the checks that tell a weftd that does not run yet what it would meet: the required ones
// are of what it cannot start without, and the others of what would keep packets from passing.
func ExamineStart(f *Facts) (required, others []Finding) {
	f.Start = true
	for _, c := range Checks() {
		switch {
		case c.of&ofStart != 0:
			required = append(required, c.examine(f)...)
		case c.of&ofRunning == 0:
			others = append(others, c.examine(f)...)
		}
	}
	return required, others
}

func (c Check) examine(f *Facts) []Finding {
	found := c.run(f)
	if f.tunInOtherNetns() && c.of&ofTUN != 0 {
		found = one(Unknown, "the TUN is in another network namespace, which is not looked into")
	}
	for i := range found {
		x := &found[i]
		x.ID, x.Cause, x.Remedy = c.ID, f.withStore(x.Cause), f.withStore(x.Remedy)
	}
	return found
}

// WorstFirst returns the findings sorted by verdict, those of one verdict in their order.
func WorstFirst(l []Finding) []Finding {
	l = slices.Clone(l)
	slices.SortStableFunc(l, func(a, b Finding) int { return a.Verdict.rank() - b.Verdict.rank() })
	return l
}

// says makes a finding without cause and remedy.
func says(v Verdict, format string, a ...any) Finding {
	return Finding{Verdict: v, Found: fmt.Sprintf(format, a...)}
}

func one(v Verdict, format string, a ...any) []Finding { return []Finding{says(v, format, a...)} }

// about names the subject, because the likely cause, and do the remedy.
func (f Finding) about(subject string) Finding { f.Subject = subject; return f }
func (f Finding) because(format string, a ...any) Finding {
	f.Cause = fmt.Sprintf(format, a...)
	return f
}
func (f Finding) do(format string, a ...any) Finding {
	f.Remedy = fmt.Sprintf(format, a...)
	return f
}

// orOK returns found, or if there is nothing, one finding that all is well.
func orOK(found []Finding, format string, a ...any) []Finding {
	if len(found) > 0 {
		return found
	}
	return one(OK, format, a...)
}
