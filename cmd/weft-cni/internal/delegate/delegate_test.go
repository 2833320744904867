package delegate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"weft/cmd/weft-cni/internal/netconf"
)

// result is of version 1.0.0 and older alike.
const result = `"ips":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"}]`

// fake is a plugin that knows the versions given, notes what it is called with in
// dir/calls, and answers. With "fail" in its configuration it fails.
func fake(t *testing.T, versions ...string) (c *Caller, calls func() []string) {
	t.Helper()
	dir := t.TempDir()
	quoted, err := json.Marshal(versions)
	if err != nil {
		t.Fatal(err)
	}
	script := `#!/bin/sh
in=$(cat)
[ "$CNI_COMMAND" = VERSION ] && { echo '{"cniVersion":"1.0.0","supportedVersions":` + string(quoted) + `}'; exit; }
v=$(printf %s "$in" | sed -n 's/.*"cniVersion":"\([^"]*\)","i.*/\1/p')
printf '%s %s %s %s %s %s %s %s\n' "$CNI_COMMAND" "$v" "$CNI_CONTAINERID" "$CNI_IFNAME" "$CNI_NETNS" "$CNI_ARGS" "$CNI_PATH" "$in" >>` + dir + `/calls
case '` + string(quoted) + `' in
*'"'$v'"'*) ;;
*) echo '{"code":1,"msg":"incompatible CNI versions"}'; exit 1 ;;
esac
case $in in *'"fail"'*) echo '{"code":77,"msg":"as told","details":"d"}'; exit 1 ;; esac
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion":"'$v'",` + result + `}'
echo a remark >&2
`
	if err := os.WriteFile(filepath.Join(dir, "fake"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return New("/nonexistent:"+dir, io.Discard), func() []string {
		b, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		var out []string
		for line := range strings.Lines(strings.ReplaceAll(string(b), dir, "DIR")) {
			out = append(out, strings.TrimSpace(line))
		}
		return out
	}
}

func parsed(t *testing.T, version, more string) netconf.Delegate {
	t.Helper()
	d, err := netconf.ParseDelegate([]byte(`{"cniVersion":"` + version + `","ipam":{},"name":"n","type":"fake"` +
		more + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCallsCarryTheAttachment(t *testing.T) {
	c, calls := fake(t, "0.4.0", "1.0.0")
	call := Call{ContainerID: "id", NetNS: "/ns", IfName: "eth7", Args: "A=b;C=d"}
	d := parsed(t, "1.0.0", "")
	if _, err := c.Add(t.Context(), d, call); err != nil {
		t.Fatal(err)
	}
	if err := c.Check(t.Context(), d, call); err != nil {
		t.Fatal(err)
	}
	if err := c.Del(t.Context(), d, Call{ContainerID: "id", IfName: "eth7"}); err != nil {
		t.Fatal(err)
	}
	const conf = `/nonexistent:DIR {"cniVersion":"1.0.0","ipam":{},"name":"n","type":"fake"}`
	want := []string{"ADD 1.0.0 id eth7 /ns A=b;C=d " + conf, "CHECK 1.0.0 id eth7 /ns A=b;C=d " + conf,
		"DEL 1.0.0 id eth7   " + conf}
	if got := calls(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestOlderDelegate(t *testing.T) {
	call := Call{ContainerID: "id", NetNS: "/ns", IfName: "eth0"}
	for _, asked := range []string{"1.1.0", "1.0.0", "0.4.0", "0.3.1"} {
		c, calls := fake(t, "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0")
		r, err := c.Add(t.Context(), parsed(t, asked, ""), call)
		if err != nil {
			t.Fatalf("%s: %v", asked, err)
		}
		var text bytes.Buffer
		if err := r.PrintTo(&text); err != nil || !strings.Contains(text.String(), `"cniVersion": "`+asked+`"`) ||
			!strings.Contains(text.String(), "10.0.0.2/24") {
			t.Errorf("%s: the result is %s, %v", asked, text.String(), err)
		}
		if got, want := len(calls()), map[bool]int{true: 2, false: 1}[asked == "1.1.0"]; got != want {
			t.Errorf("%s: called %d times, want %d", asked, got, want)
		}
	}

	// What ADD gave is in the older version too when it is handed over.
	c, calls := fake(t, "0.4.0")
	prev := `,"prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mtu":1450}],` +
		strings.ReplaceAll(result, `"}]`, `","interface":0}]`) + `}`
	if err := c.Check(t.Context(), parsed(t, "1.1.0", prev), call); err != nil {
		t.Fatal(err)
	}
	last := calls()[1]
	if !strings.HasPrefix(last, "CHECK 0.4.0") || !strings.Contains(last, `"version":"4"`) ||
		strings.Contains(last, "1.1.0") {
		t.Errorf("got %s", last)
	}
}

func TestCommandsThatADelegateLacks(t *testing.T) {
	for _, c := range []struct {
		versions []string
		check    bool
		gc       bool
	}{{[]string{"0.3.1"}, false, false}, {[]string{"0.3.1", "0.4.0", "1.0.0"}, true, false},
		{[]string{"1.0.0", "1.1.0"}, true, true}} {
		p, calls := fake(t, c.versions...)
		d := parsed(t, "1.1.0", "")
		unsupported := func(what string, err error, known bool) {
			t.Helper()
			if known && err != nil || !known && !errors.Is(err, ErrUnsupported) {
				t.Errorf("%s of a plugin of %s: %v", what, c.versions, err)
			}
		}
		unsupported("CHECK", p.Check(t.Context(), d, Call{}), c.check)
		unsupported("GC", p.GC(t.Context(), d), c.gc)
		unsupported("STATUS", p.Status(t.Context(), d), c.gc)
		for _, line := range calls() {
			if !c.gc && (strings.HasPrefix(line, "GC") || strings.HasPrefix(line, "STATUS")) {
				t.Errorf("a plugin of %s was called: %s", c.versions, line)
			}
		}
	}
}

func TestErrorsOfTheDelegate(t *testing.T) {
	c, calls := fake(t, "1.0.0")
	for what, err := range map[string]error{
		"DEL": c.Del(t.Context(), parsed(t, "1.0.0", `,"x":"fail"`), Call{}),
		"ADD": func() error { _, err := c.Add(t.Context(), parsed(t, "1.1.0", `,"x":"fail"`), Call{}); return err }(),
	} {
		var e *types.Error
		if !errors.As(err, &e) || e.Code != 77 || e.Msg != "as told" || e.Details != "d" {
			t.Errorf("%s: got %v", what, err)
		}
	}
	before := len(calls())
	if _, err := c.Add(t.Context(), parsed(t, "0.3.1", ""), Call{}); err == nil ||
		!strings.Contains(err.Error(), "incompatible") {
		t.Errorf("with no version in common: %v", err)
	}
	if n := len(calls()) - before; n != 1 {
		t.Errorf("with no version in common: called %d times", n)
	}
	d, err := netconf.ParseDelegate([]byte(`{"name":"n","type":"../fake"}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Del(t.Context(), d, Call{}); err == nil {
		t.Error("a type that is a path was run")
	}
	d.Type = "missing"
	if err := c.Del(t.Context(), d, Call{}); err == nil ||
		!strings.Contains(fmt.Sprint(err), "containernetworking-plugins") ||
		!strings.Contains(fmt.Sprint(err), "/nonexistent") {
		t.Errorf("a plugin that is not installed: %v", err)
	}
}
