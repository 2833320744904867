package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/doctor"
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
		f := doctorFlags{all: all}
		if status := exitStatus(0); !errors.As(f.print(&out, sick()), &status) || status != exitFailure {
			t.Errorf("%s: exit status %d", name, status)
		}
		golden(t, name, out.Bytes())
	}
}

func TestDoctorLists(t *testing.T) {
	out, _, err := weft(t, "doctor", "--list", "--json")
	var l listed
	if err != nil || json.Unmarshal([]byte(out), &l) != nil || l.SchemaVersion != doctor.SchemaVersion ||
		len(l.Checks) != len(doctor.Checks()) {
		t.Fatalf("%v\n%s", err, out)
	}
	text, _, err := weft(t, "doctor", "--list")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range l.Checks {
		if !strings.Contains(text, string(c.ID)+" ") || c.Looks == "" {
			t.Errorf("%q is not in the list", c.ID)
		}
	}
}

// What is no flag of weftd, or stands in front of --, is wrong usage.
func TestDoctorsArguments(t *testing.T) {
	for _, args := range [][]string{{"doctor", "eth0"}, {"doctor", "--nonsense"},
		{"doctor", "--", "--ifcae=eth0"}} {
		if _, _, err := weft(t, args...); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
	// What is wrong with the variables, of which this command line says nothing, is a finding.
	socket := filepath.Join(t.TempDir(), "nobody.sock")
	t.Setenv("WEFTD_HEALTHZ_PORT", "some")
	out, _, _ := weft(t, "doctor", "--json", "--offline", "--control-socket", socket, "--", "--iface=eth0")
	var r doctor.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if r.Healthy || !slices.ContainsFunc(r.Findings, func(f doctor.Finding) bool {
		return f.ID == doctor.CheckSettings && f.Verdict == doctor.Fault &&
			strings.Contains(f.Found, "WEFTD_HEALTHZ_PORT")
	}) {
		t.Errorf("%s", out)
	}
}
