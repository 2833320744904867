package options

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// generated returns the part of a file between begin and the first end behind it, and has -update replace it
// by want.
func generated(t *testing.T, file, begin, end, want string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), begin)
	if !ok {
		t.Fatalf("%s has no %q", file, begin)
	}
	got, tail := rest, ""
	if end != "" {
		i := strings.Index(rest, end)
		if i < 0 {
			t.Fatalf("%s has no %q", file, end)
		}
		got, tail = rest[:i], rest[i:]
	}
	if got == want {
		return
	}
	if flag.Lookup("update").Value.String() != "true" {
		t.Errorf("%s is not what the flags declare: go test ./cmd/internal/options -update writes it", file)
		return
	}
	if err := os.WriteFile(file, []byte(head+begin+want+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write weftd.env anew")
	os.Exit(m.Run())
}

// TestSampleEnvironment has weftd.env show each variable, with the flag's usage and its default. Without the
// comment signs it changes nothing.
func TestSampleEnvironment(t *testing.T) {
	c := defaults()
	fs := newFlagSet(&c)
	var out strings.Builder
	var environ []string
	for _, s := range sections(&c) {
		if s.title == "" {
			continue
		}
		fmt.Fprintf(&out, "\n# == %s\n", s.title)
		for _, r := range s.rows {
			f := fs.Lookup(r.name)
			variable := variables(r.name)[0] + "=" + f.DefValue
			fmt.Fprintf(&out, "\n%s#%s\n", comment(f), variable)
			environ = append(environ, variable)
		}
	}
	generated(t, "../../weftd/deploy/weftd.env", "weftd.env; set +a; weftd --check\n", "", out.String())
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

// comment is the usage of f in lines of a comment.
func comment(f *flag.Flag) string {
	_, usage := flag.UnquoteUsage(f)
	words := strings.Fields(usage)
	if !strings.HasSuffix(words[0], ":") {
		words[0] = strings.ToUpper(words[0][:1]) + words[0][1:]
	}
	var out strings.Builder
	line := "#"
	for _, w := range words {
		if len(line)+1+len(w) > 110 {
			out.WriteString(line + "\n")
			line = "#"
		}
		line += " " + w
	}
	return out.String() + line + ".\n"
}
