package show

import (
	"fmt"
	"strings"
	"testing"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
)

func TestStatusSaysWhoKeepsDescriptors(t *testing.T) {
	for want, k := range map[string]*control.Custody{
		"":        nil,
		"holder":  {By: custody.ByHolder, PID: 7, Items: 2, Descriptors: 2},
		"service": {By: custody.ByManager, Items: 2, Descriptors: 2, Discarded: 3},
		"nobody":  {Items: 2, Descriptors: 2, Fault: "because"},
	} {
		var got strings.Builder
		custodyRows(func(name, format string, a ...any) { fmt.Fprintf(&got, name+" "+format+"\n", a...) }, k)
		if !strings.Contains(got.String(), want) || (k == nil) != (got.Len() == 0) ||
			k != nil && !strings.Contains(got.String(), k.Fault) {
			t.Errorf("%+v: %q", k, got.String())
		}
	}
}
