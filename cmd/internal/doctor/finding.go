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

// Finding is what one check found out about one thing.
type Finding struct {
	// ID is the check's.
	ID      string  `json:"id"`
	Verdict Verdict `json:"verdict"`
	// Subject is what was looked at: a file, a link, an endpoint, a peer; empty for this host.
	Subject string `json:"subject,omitempty"`
	// Found says what is so, in one sentence.
	Found string `json:"found"`
	// Cause is there only if it was Observed. Else Open may have those that are not excluded, each with the
	// command that tells.
	Cause    string           `json:"cause,omitempty"`
	Observed bool             `json:"observed,omitempty"`
	Open     []diagnose.Cause `json:"open,omitempty"`
	// Remedy is what to do, in commands if there are some.
	Remedy string `json:"remedy,omitempty"`
}

// findOut begins a remedy that tells open causes apart.
const findOut = "find out which: "

// Ends says that Remedy ends what was found, and not only tells its causes apart.
func (f Finding) Ends() bool { return f.Remedy != "" && !strings.HasPrefix(f.Remedy, findOut) }

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
	found := f.withheld(c.of)
	if found == nil {
		found = c.run(f)
	}
	for i := range found {
		x := &found[i]
		if x.Remedy == "" && len(x.Open) > 0 {
			var parts []string
			for _, o := range x.Open {
				parts = append(parts, fmt.Sprintf("%s (%s: %s)", o.Cause, o.Where, o.Command))
			}
			x.Remedy = findOut + strings.Join(parts, "; or ")
		}
		x.ID, x.Remedy = c.ID, f.withStore(x.Remedy)
	}
	return found
}

// withheld says why a check of that kind cannot look; nil if it can.
func (f *Facts) withheld(k kind) findings {
	r := f.Settings.Rootless
	switch {
	case k&ofTUN != 0 && (r.On || r.TUNNetns != "" || f.Daemon.Status.Namespace != nil):
		return says(Unknown, "the TUN is in another network namespace, which is not looked into")
	case k&needsWeftd != 0 && !f.Daemon.Answers():
		return says(Unknown, "weftd does not answer")
	case k&needsLinks != 0 && f.Links.Err != nil:
		return says(Unknown, "%v", f.Links.Err)
	case k&needsNetwork != 0 && !f.Network.known():
		return says(Unknown, "the network config is not known")
	case k&needsRecords != 0 && f.Network.RecordsFrom == "":
		return says(Unknown, "no records of peers are known")
	}
	return nil
}

// WorstFirst returns the findings sorted by verdict, those of one verdict in their order.
func WorstFirst(l []Finding) []Finding {
	order := []Verdict{Fault, Warning, Note, Unknown, OK}
	l = slices.Clone(l)
	slices.SortStableFunc(l, func(a, b Finding) int {
		return slices.Index(order, a.Verdict) - slices.Index(order, b.Verdict)
	})
	return l
}

// findings are what a check found, in order. Its methods but says, or and orOK change the last one in place,
// and return all of them.
type findings []Finding

// says returns one finding, without cause and remedy.
func says(v Verdict, format string, a ...any) findings { return findings(nil).says(v, format, a...) }

func (l findings) says(v Verdict, format string, a ...any) findings {
	return append(l, Finding{Verdict: v, Found: fmt.Sprintf(format, a...)})
}

func (l findings) last() *Finding { return &l[len(l)-1] }

// about names the subject, because the cause that was observed, and do the remedy.
func (l findings) about(subject string) findings {
	l.last().Subject = subject
	return l
}

func (l findings) because(format string, a ...any) findings {
	l.last().Cause, l.last().Observed = fmt.Sprintf(format, a...), true
	return l
}

func (l findings) do(format string, a ...any) findings {
	l.last().Remedy = fmt.Sprintf(format, a...)
	return l
}

// follows takes over what diagnose makes of the same, without the command that runs.
func (l findings) follows(why diagnose.Finding) findings {
	if !why.Observed() {
		for i, c := range why.Causes {
			if c.Where == "here" {
				others := strings.TrimPrefix(c.Command, "weft doctor; ")
				why.Causes[i].Command = strings.TrimSuffix(others, "; weft doctor")
			}
		}
		l.last().Open = why.Causes
		return l
	}
	c := why.Causes[0]
	return l.because("%s", c.Cause).do("%s: %s", c.Where, cmp.Or(c.Remedy, c.Command))
}

// or returns one finding if there is none yet, and orOK that all is well.
func (l findings) or(v Verdict, format string, a ...any) findings {
	if len(l) > 0 {
		return l
	}
	return says(v, format, a...)
}

func (l findings) orOK(format string, a ...any) findings { return l.or(OK, format, a...) }
