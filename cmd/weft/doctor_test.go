package main

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weft/cmd/internal/doctor"
	"weft/cmd/weft/internal/cli"
)

func TestDoctorLists(t *testing.T) {
	out, _, err := weft(t, "doctor", "--list", "--json")
	var l struct {
		versioned
		Checks []struct {
			ID    string
			Looks string `json:"looks_at"`
		}
	}
	if err != nil || json.Unmarshal([]byte(out), &l) != nil || l.SchemaVersion != doctor.SchemaVersion ||
		len(l.Checks) != len(doctor.Checks()) {
		t.Fatalf("%v\n%s", err, out)
	}
	text, _, err := weft(t, "doctor", "--list")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range l.Checks {
		if !strings.Contains(text, c.ID+" ") || c.Looks == "" {
			t.Errorf("%q is not in the list", c.ID)
		}
	}
}

// What is no flag of weftd, or stands in front of --, is wrong usage.
func TestDoctorsArguments(t *testing.T) {
	for _, args := range [][]string{{"doctor", "eth0"}, {"doctor", "--nonsense"},
		{"doctor", "--", "--ifcae=eth0"}} {
		if _, _, err := weft(t, args...); !errors.Is(err, cli.ErrUsage) {
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
		return f.ID == "settings" && f.Verdict == doctor.Fault &&
			strings.Contains(f.Found, "WEFTD_HEALTHZ_PORT")
	}) {
		t.Errorf("%s", out)
	}
}
