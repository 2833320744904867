package routing

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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

func TestExtPlan(t *testing.T) {
	peer := func(n int, data string) extPeer {
		return extPeer{V4: pfx(fmt.Sprintf("10.5.%d.0/24", n)), IP: addr(fmt.Sprintf("192.0.2.%d", n)), Data: data}
	}
	text := func(change []extChange, remove []extPeer) string {
		var out []string
		for _, c := range change {
			if c.old != nil {
				out = append(out, fmt.Sprintf("-%v %s", c.old.V4, c.old.Data))
			}
			out = append(out, fmt.Sprintf("+%v %s", c.add.V4, c.add.Data))
		}
		for _, p := range remove {
			out = append(out, fmt.Sprintf("-%v %s", p.V4, p.Data))
		}
		return strings.Join(out, ", ")
	}
	for _, c := range []struct {
		have, want []extPeer
		plan       string
	}{
		{nil, nil, ""},
		{nil, []extPeer{peer(2, "a"), peer(3, "b")}, "+10.5.2.0/24 a, +10.5.3.0/24 b"},
		{[]extPeer{peer(2, "a")}, []extPeer{peer(2, "a")}, ""},
		{[]extPeer{peer(2, "a"), peer(4, "d")}, []extPeer{peer(2, "b"), peer(3, "c")},
			"-10.5.2.0/24 a, +10.5.2.0/24 b, +10.5.3.0/24 c, -10.5.4.0/24 d"},
		{[]extPeer{peer(2, "a")}, nil, "-10.5.2.0/24 a"},
	} {
		if got := text(extPlan(c.have, c.want)); got != c.plan {
			t.Errorf("%v to %v: %q, want %q", c.have, c.want, got, c.plan)
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
