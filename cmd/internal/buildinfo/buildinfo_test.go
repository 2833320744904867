package buildinfo

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestVersionIsPrintedForPeopleAndScripts(t *testing.T) {
	for _, tt := range []struct {
		args, want string
		usage      bool
	}{
		{"", "weftx v1.2.3\n", false}, {"-h", "usage: weftx version [--json]\n", false}, {"--jsn", "", true},
		{"extra", "", true}, {"--json extra", "", true},
	} {
		var out bytes.Buffer
		if err := Command(&out, "weftx", Version("v1.2.3"), strings.Fields(tt.args)); errors.Is(err, ErrUsage) !=
			tt.usage || out.String() != tt.want {
			t.Errorf("%q: %v %q", tt.args, err, &out)
		}
	}
	var out bytes.Buffer
	var d Document
	if err := Command(&out, "weftx", Version("v1.2.3"), []string{"--json"}); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &d); err != nil || d.SchemaVersion != 1 || d.Program != "weftx" ||
		d.Version != "v1.2.3" || !strings.HasPrefix(d.Go, "go") || !strings.HasPrefix(d.Platform, "linux/") {
		t.Errorf("%v %s", err, &out)
	}
	if Version("") == "" {
		t.Error("a build without a version says nothing")
	}
	for args, want := range map[string]bool{"version": true, "--version --json": true, "-v": true,
		"--verbose": false, "": false} {
		if Asked(strings.Fields(args)) != want {
			t.Errorf("%q: not %t", args, want)
		}
	}
}
