package document

import (
	"fmt"
	"testing"
)

func TestCommands(t *testing.T) {
	const text = "Call `weft status --json` or `weft lab up|run`, not `weftd --check`.\n" +
		"```\nmake && sudo bin/weft lab up --nodes 3   # three\nweft bench \\\n  --quick\nkubectl exec POD -- " +
		"weft peers\nweft ping …\nweft attach --pid \"$(cat pid)\"\n```\n" +
		"`weft`"
	want := "[{a.md:1 [status --json] false} {a.md:3 [lab up --nodes 3] true} {a.md:5 [bench --quick] true} " +
		"{a.md:6 [peers] true} {a.md:8 [attach --pid 1] true}]"
	if got := fmt.Sprint(commands("a.md", text, "weft")); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
