package routing

import (
	"encoding/json"
	"slices"
	"testing"

	"weft/lease"
)

func TestSplitCommand(t *testing.T) {
	v := variables{{"SUBNET", "10.5.2.0/24"}, {"EVIL", "a b; reboot $SUBNET"}, {"EMPTY", ""}}
	t.Setenv("FROM_DAEMON", "x y")
	for command, want := range map[string][]string{
		"":                            nil,
		" \t\n":                       nil,
		"ip route add $SUBNET dev x":  {"ip", "route", "add", "10.5.2.0/24", "dev", "x"},
		"a ${SUBNET}x $SUBNET,$EMPTY": {"a", "10.5.2.0/24x", "10.5.2.0/24,"},
		"a $EVIL $EMPTY z":            {"a", "a b; reboot $SUBNET", "", "z"},
		"a; b && c | d > e `f`":       {"a;", "b", "&&", "c", "|", "d", ">", "e", "`f`"},
		"a 'b c' $NOT_THERE.":         {"a", "'b", "c'", "."},
		"$FROM_DAEMON":                {"x y"},
	} {
		if got := splitCommand(command, v.lookup); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
}

// What a peer publishes is text, or the peer is not used.
func TestExtPeerData(t *testing.T) {
	for data, want := range map[string]string{`"key\n$(x)"`: "key\n$(x)", `null`: "", ``: "",
		`{"a":1}`: "refused", `7`: "refused", `"\u0000"`: "\x00"} {
		r := lease.Record{Attrs: lease.Attrs{BackendType: typeExtension, BackendData: json.RawMessage(data)}}
		p, why := newExtPeer(r)
		if (why != "") != (want == "refused") || why == "" && p.Data != want {
			t.Errorf("%s: %q, %q", data, p.Data, why)
		}
	}
}
