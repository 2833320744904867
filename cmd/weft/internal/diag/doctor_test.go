package diag

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"weft/cmd/internal/doctor"
	"weft/cmd/weft/internal/cli"
	"weft/test/golden"
)

// sick is a report with a finding of each verdict.
func sick() doctor.Report {
	return doctor.Report{SchemaVersion: doctor.SchemaVersion, At: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC),
		Settings: "the running weftd (pid 7)", Findings: []doctor.Finding{
			{ID: "daemon", Verdict: doctor.OK, Found: "weftd (pid 7) answers and is ready"},
			{ID: "bridge-netfilter", Verdict: doctor.Note, Found: "net.bridge.bridge-nf-call-iptables is 0",
				Remedy: "sysctl -w net.bridge.bridge-nf-call-iptables=1"},
			{ID: "clock", Verdict: doctor.Unknown, Found: "no endpoint told its time"},
			{ID: "store-endpoint", Verdict: doctor.Warning, Subject: "https://192.0.2.9:2379",
				Found: "it refuses the connection: nothing listens there", Cause: "etcd does not run there",
				Remedy: "ss -lntp"},
			{ID: "port", Verdict: doctor.Fault,
				Found: "UDP port 8285 is taken, at 0.0.0.0:8285, by evil\x1b[2J (pid " +
					"99)", Cause: "a flanneld runs here", Remedy: "ss -lunp 'sport = :8285'"},
		}}
}

func TestDoctorPrints(t *testing.T) {
	for name, all := range map[string]bool{"doctor": false, "doctor-all": true} {
		var out bytes.Buffer
		f := doctorFlags{App: cli.NewApp(""), all: all}
		if status := cli.ExitStatus(0); !errors.As(f.print(&out, sick()), &status) ||
			status != cli.ExitFailure {
			t.Errorf("%s: exit status %d", name, status)
		}
		golden.Check(t, name, out.Bytes())
	}
}
