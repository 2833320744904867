package image

import (
	"errors"
	"reflect"
	"testing"
)

func TestParse(t *testing.T) {
	got, err := Parse("# comment\nARG A=1\nFROM --platform=$P ${A} AS build\nRUN one && \\\n  two\n\nfrom scratch as small\nCOPY --from=build /a /b/\nENV X=y\nENTRYPOINT [\"/a\", \"b\"]\n")
	want := map[string]Stage{
		"build": {From: "${A}", Steps: []Step{{"RUN", "one &&    two"}}},
		"small": {From: "scratch", Steps: []Step{{"COPY", "--from=build /a /b/"}, {"ENV", "X=y"}, {"ENTRYPOINT", `["/a", "b"]`}}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n got %q\nwant %q", err, got, want)
	}
	if e := got["small"].Entrypoint(); !reflect.DeepEqual(e, []string{"/a", "b"}) {
		t.Errorf("entry point %q", e)
	}
	for _, text := range []string{"RUN x\n", "FROM x\n", "FROM x AS\n"} {
		if _, err := Parse(text); !errors.Is(err, ErrDockerfile) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if names, ok := packages("apt-get update && apt-get install -y --no-install-recommends a b && rm -rf /c"); !ok || !reflect.DeepEqual(names, []string{"a", "b"}) {
		t.Errorf("%q, %v", names, ok)
	}
}

// A step that the package does not understand is an error, and not ignored.
func TestStepsThatAreNotUnderstood(t *testing.T) {
	for _, s := range []Step{{"ADD", "a /b/"}, {"COPY", "--chown=1 a /b/"}, {"COPY", "a"}, {"COPY", "a /b"}} {
		if err := (Source{}).apply(s, t.TempDir()); !errors.Is(err, ErrDockerfile) {
			t.Errorf("%v: %v", s, err)
		}
	}
}
