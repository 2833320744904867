package options

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheSampleEnvironmentIsComplete: the file that is shipped beside the unit has every variable once, commented out, with
// a sentence before it and the flag's default behind it; and read with the comment signs taken away it changes nothing.
func TestTheSampleEnvironmentIsComplete(t *testing.T) {
	b, err := os.ReadFile("../../weftd/deploy/weftd.env")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`^#(WEFTD_[A-Z0-9_]+)=(.*)$`)
	values := map[string]string{}
	var environ []string
	before := ""
	for l := range strings.Lines(string(b)) {
		l = strings.TrimSuffix(l, "\n")
		m := line.FindStringSubmatch(l)
		switch {
		case m != nil && !strings.HasPrefix(before, "# "):
			t.Errorf("%s is not explained", m[1])
		case l != "" && !strings.HasPrefix(l, "#"):
			t.Errorf("not commented out: %s", l)
		}
		if m != nil {
			if _, twice := values[m[1]]; twice {
				t.Errorf("%s is there twice", m[1])
			}
			values[m[1]] = m[2]
			environ = append(environ, m[1]+"="+m[2])
		}
		before = l
	}
	c := defaults()
	newFlagSet(&c).VisitAll(func(f *flag.Flag) {
		if isMode(f.Name) {
			return
		}
		name := variables(ownFlags(), f.Name)[0]
		if value, ok := values[name]; !ok || value != f.DefValue {
			t.Errorf("%s: there %v as %q, want %q", name, ok, value, f.DefValue)
		}
		delete(values, name)
	})
	for name := range values {
		t.Errorf("%s is no variable of weftd", name)
	}
	got, err := Parse(nil, environ)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := Parse(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	value := func(l []Setting) (out []string) {
		for _, s := range l {
			out = append(out, s.Name+"="+s.Value)
		}
		return out
	}
	if have, want := value(got.Settings), value(plain.Settings); !slices.Equal(have, want) {
		t.Errorf("got %q\nwant %q", have, want)
	}
}

// Whoever chooses a --holder-timeout has to know all that is held: the flag's help, the sample and the page about restarts say the same.
func TestAllThatAHolderKeepsIsSaid(t *testing.T) {
	c := defaults()
	said := map[string]string{"--help": newFlagSet(&c).Lookup("holder-timeout").Usage}
	for file, where := range map[string]string{
		"../../weftd/deploy/weftd.env": `((?:# .*\n)+)#WEFTD_HOLDER_TIMEOUT=`, "../../../docs/restarts.md": `\n(\| SIGTERM without systemd .*\n)`,
	} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(where).FindSubmatch(b)
		if m == nil {
			t.Fatalf("%s does not have %s", file, where)
		}
		said[file] = strings.ReplaceAll(string(m[1]), "\n# ", " ")
	}
	for where, text := range said {
		for _, what := range []string{"the ports of the data plane", "the interfaces of directly attached pods", "what encrypts"} {
			if !strings.Contains(text, what) {
				t.Errorf("%s does not say %q: %s", where, what, text)
			}
		}
	}
}
