package delegate

import (
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
v=$(printf %s "$in" | sed -n 's/.*"cniVersion":"\([^"]*\)","i.*/\1/p')
printf '%s %s %s %s %s %s %s %s\n' "$CNI_COMMAND" "$v" "$CNI_CONTAINERID" "$CNI_IFNAME" "$CNI_NETNS" "$CNI_ARGS" "$CNI_PATH" "$in" >>` + dir + `/calls
case '` + string(quoted) + `' in
*'"'$v'"'*) ;;
*) echo '{"code":1,"msg":"incompatible CNI versions"}'; exit 1 ;;
esac
case $in in *'"fail"'*) echo '{"code":77,"msg":"as told","details":"d"}'; exit 1 ;; esac
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion":"'$v'","ips":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"}]}'
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

// A pod is detached that an earlier weft-cni attached by a plugin of an older version than the runtime's.
func TestAPluginOfAnOlderVersionDetaches(t *testing.T) {
	c, calls := fake(t, "0.4.0", "1.0.0")
	d := parsed(t, "1.1.0", "").WithPrevResult([]byte(`{"cniVersion":"1.1.0"}`))
	if err := c.Del(t.Context(), d, Call{ContainerID: "id", IfName: "eth7"}); err != nil {
		t.Error(err)
	}
	const want = `DEL 0.4.0 id eth7   /nonexistent:DIR {"cniVersion":"0.4.0","ipam":{},"name":"n","type":"fake"}`
	if got := calls(); len(got) != 2 || got[1] != want {
		t.Errorf("got %q", got)
	}
}

func TestErrorsOfTheDelegate(t *testing.T) {
	c, _ := fake(t, "1.0.0")
	fails := parsed(t, "1.0.0", `,"x":"fail"`)
	_, err := c.Add(t.Context(), fails, Call{})
	for what, err := range map[string]error{"ADD": err, "DEL": c.Del(t.Context(), fails, Call{})} {
		var e *types.Error
		if !errors.As(err, &e) || e.Code != 77 || e.Msg != "as told" || e.Details != "d" {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if _, err := c.Add(t.Context(), parsed(t, "0.3.1", ""), Call{}); err == nil ||
		!strings.Contains(err.Error(), "incompatible") {
		t.Errorf("with a version that it does not know: %v", err)
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
