package show

import (
	"fmt"
	"strings"
	"testing"

	"weft/cmd/internal/control"
)

func TestStatusShowsBothConfigs(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config control.Config
		want   []string
	}{
		{"the same", control.Config{InUse: "A"}, nil},
		{"another", control.Config{InUse: "A", Differs: true, Other: "B",
			Changes: []string{"type from udp to vxlan"}},
			[]string{"config=not the store's: restart", "=in use: A", "=store: B",
				"=a restart changes type from udp to vxlan"}},
		{"a bad one", control.Config{InUse: "{\n  \"A\": 1\n}\n", Differs: true, Other: "B",
			Faults: []string{"Backend.Type is"}},
			[]string{"config=the one that the store had before", "=in use: { \"A\": 1 }", "=store: B",
				"=Backend.Type is"}},
		{"a fallback", control.Config{InUse: "A", Differs: true, LastGood: true, Faults: []string{"x"}},
			[]string{"config=THE LAST GOOD ONE", "=in use: A", "=store: none", "=x"}},
		{"an unknown key", control.Config{InUse: "A", Unknown: []string{"Prot"}}, []string{"config=Prot"}},
	} {
		var got []string
		configRows(func(name, format string, a ...any) { got = append(got, name+"="+fmt.Sprintf(format, a...)) },
			control.Status{Config: tt.config})
		if len(got) != len(tt.want) {
			t.Fatalf("%s: %q", tt.name, got)
		}
		for i, w := range tt.want {
			if !strings.HasPrefix(got[i], w) {
				t.Errorf("%s: got %q, want %q", tt.name, got[i], w)
			}
		}
	}
}
