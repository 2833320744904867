package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/events"
)

// historian is a weftd whose state directory has a history.
type historian struct {
	node
	dir string
}

func (h *historian) Status() control.Status {
	s := h.node.Status()
	s.Cache.File = filepath.Join(h.dir, "lease.json")
	return s
}

func TestEvents(t *testing.T) {
	t.Setenv("TZ", "UTC")
	dir := t.TempDir()
	var text []byte
	for i, e := range []events.Event{
		{Kind: events.Started, Level: "info", Message: "weftd starts", Details: map[string]string{"version": "v1"}},
		{Kind: events.PeerGone, Level: "info", Message: "peer gone",
			Details: map[string]string{"peer": "evil\x1b[2J", "subnets": "10.42.2.0/24", "id": ""}},
		{Kind: events.Fault, Level: "error", Message: "two words",
			Details: map[string]string{"reason": "two words"}},
	} {
		e.Time = time.Date(2026, 1, 2, 3, 4, i, 0, time.UTC)
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, b...), '\n')
	}
	if err := os.WriteFile(filepath.Join(dir, events.File), append(text, "{\"cut o"...), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := start(t, &historian{dir: dir})
	for args, want := range map[string][]string{
		"events": {"started", "version=v1", "peer_gone", "evil?[2J",
			"subnets=10.42.2.0/24\n", `reason="two words"`},
		"events --since 2026-01-02T03:04:01Z": {"two words"},
		"events --kind peer_gone":             {"peer_gone"},
		"events -n 1":                         {"two words"},
		"events --since 1h":                   {""},
	} {
		out, stderr, err := weft(t, append(strings.Fields(args), "--control-socket", socket)...)
		if err != nil || (stderr != "") != (want[0] == "") || stderr != "" && !strings.Contains(stderr, dir) {
			t.Errorf("%s: %v %s", args, err, stderr)
		}
		for _, w := range want {
			if !strings.Contains(out, w) || strings.Contains(out, "\x1b") {
				t.Errorf("%s: %q is not in:\n%s", args, w, out)
			}
		}
		if lines := strings.Count(out, "\n"); args != "events" && lines != min(1, len(want[0])) {
			t.Errorf("%s: %d lines:\n%s", args, lines, out)
		}
	}
	var doc struct {
		SchemaVersion int `json:"schema_version"`
		Events        []events.Event
	}
	out, _, err := weft(t, "events", "--json", "--cache-dir", dir, "--control-socket", "/nonexistent/s")
	if err := errors.Join(err, json.Unmarshal([]byte(out), &doc)); err != nil || doc.SchemaVersion != 1 ||
		len(doc.Events) != 3 || doc.Events[1].Kind != events.PeerGone {
		t.Errorf("%v %+v", err, doc)
	}
	for args, want := range map[string]string{
		"events --cache-dir /nonexistent/d": "--cache-dir", "events --cache-dir " + t.TempDir(): "no history",
		"events --since yesterday": "--since", "events --kind peer": "peer_gone",
	} {
		if _, _, err := weft(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// Of a history that is there and empty, as on a full disk, it is not said that flags left everything out.
func TestEventsOfAnEmptyHistory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, events.File), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, err := weft(t, "events", "--cache-dir", dir)
	if err != nil || out != "" || !strings.Contains(stderr, dir) || strings.Contains(stderr, "--since") {
		t.Errorf("%q %q %v", out, stderr, err)
	}
}
