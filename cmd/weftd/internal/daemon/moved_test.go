package daemon

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"weft/lease"
)

func TestAnotherOwnSubnetIsAWarning(t *testing.T) {
	v4 := func(s string) lease.Subnets { return lease.Subnets{V4: netip.MustParsePrefix(s)} }
	both := lease.Subnets{V4: netip.MustParsePrefix("10.42.7.0/24"), V6: netip.MustParsePrefix("fd00:7::/64")}
	for _, tt := range []struct {
		name            string
		file, last, now lease.Subnets
		want            string
	}{
		{"the first ever", lease.Subnets{}, lease.Subnets{}, v4("10.42.7.0/24"), ""},
		{"the same as in the file", v4("10.42.7.0/24"), lease.Subnets{}, v4("10.42.7.0/24"), ""},
		{"another than in the file", v4("10.42.7.0/24"), lease.Subnets{}, v4("10.42.9.0/25"),
			"before=10.42.7.0/24 now=10.42.9.0/25"},
		{"while running", v4("10.42.1.0/24"), v4("10.42.7.0/24"), v4("10.42.9.0/24"),
			"before=10.42.7.0/24 now=10.42.9.0/24"},
		{"given up", v4("10.42.7.0/24"), v4("10.42.7.0/24"), lease.Subnets{}, ""},
		{"a family more", v4("10.42.7.0/24"), v4("10.42.7.0/24"), both, ""},
	} {
		var out bytes.Buffer
		(&overlay{before: tt.file}).warnMoved(slog.New(slog.NewTextHandler(&out, nil)), tt.last, tt.now)
		if got := out.String(); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") ||
			got != "" && !strings.Contains(got, "level=WARN") {
			t.Errorf("%s: %s", tt.name, got)
		}
	}
}
