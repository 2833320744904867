package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
)

func (n *node) Matrix(context.Context) (control.Matrix, error) {
	if n.empty {
		return control.Matrix{}, fmt.Errorf("%w: this node asks nobody (--probe=false, or Backend.Probe)",
			control.ErrRefused)
	}
	b, err := os.ReadFile("internal/diag/testdata/matrix-asked.golden")
	if err != nil {
		return control.Matrix{}, err
	}
	var m control.Matrix
	return m, errors.Join(json.Unmarshal(b, &m), n.err)
}

func TestMatrixAsAScriptSeesIt(t *testing.T) {
	socket := start(t, &node{})
	status, out, stderr := exits(t, "matrix", "--json", "--control-socket", socket)
	var d struct {
		SchemaVersion int `json:"schema_version"`
		control.Matrix
		Pairs    map[string]int
		Troubles []struct {
			Nodes, Causes       []string
			Found, Likely, Look string
		}
		Reached *bool
	}
	dec := json.NewDecoder(strings.NewReader(out))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil || status != cli.ExitFailure || stderr != "" ||
		d.SchemaVersion != 1 ||
		d.Reached == nil || *d.Reached || len(d.Troubles) != 5 || len(d.Nodes) != 8 {
		t.Errorf("%v, status %d %s, %+v", err, status, stderr, d.Troubles)
	}
	status, out, _ = exits(t, "matrix", "--node", "10.42.0.0/24", "--node", "node2", "--control-socket", socket)
	if status != cli.ExitFailure || !strings.Contains(out, "node6") || strings.Contains(out, "node8") {
		t.Errorf("--node: %d\n%s", status, out)
	}
	if _, _, err := weft(t, "matrix", "--node", "nobody", "--control-socket", socket); err == nil ||
		!strings.Contains(err.Error(), `"nobody"`) {
		t.Errorf("nobody: %v", err)
	}
	if _, _, err := weft(t, "matrix", "node2", "--control-socket", socket); !errors.Is(err, cli.ErrUsage) {
		t.Errorf("an argument: %v", err)
	}
	if _, _, err := weft(t, "matrix", "--control-socket", start(t, &node{empty: true})); err == nil ||
		!strings.Contains(err.Error(), "--probe=false") {
		t.Errorf("without probes: %v", err)
	}
}
