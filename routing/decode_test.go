package routing

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weft/encap"
	"weft/routing/internal/plane"
	"weft/tunnel"
)

// TestTags has what the tags say agree with what they stand for: a misspelt one would be no tag at all.
func TestTags(t *testing.T) {
	known := []string{"default", "range", "range6", "words", "want", "secret", "shared"}
	words := map[string][]string{
		"Path": PathWords(), "RxUDPGROForwarding": plane.ForwardingWords(),
		"Userspace":   {userAuto, userAlways, userNever},
		"SourceCheck": {tunnel.CheckStrict.String(), tunnel.CheckOuter.String(), tunnel.CheckOff.String()},
		"Mode":        {modeSeparate, modeAuto, mode4, mode6}, "Encrypt": {encryptAlways, encryptBetweenLinks},
	}
	mtu := func(overhead int) string { return fmt.Sprintf("%d..65535", minMTU6+overhead) }
	vxlan6, wireGuard6 := mtu(encap.FormatVXLAN.Overhead(true)), mtu(wireGuardOverhead)
	six := map[string][]string{
		typeUDP: {mtu(encap.FormatIP.Overhead(false))}, typeVXLAN: {vxlan6}, typeAuto: {vxlan6, wireGuard6},
		typeWireGuard: {wireGuard6}, typeIPIP: {""},
	}
	for _, kind := range BuiltIn() {
		for _, k := range append(kind.keys(), keysOf(new(common))...) {
			for rest := string(k.tag); rest != ""; {
				name, after, _ := strings.Cut(strings.TrimSpace(rest), ":")
				if !slices.Contains(known, name) {
					t.Errorf("%s, %s: tag %q", kind.Name, k.name, name)
				}
				value := k.tag.Get(name)
				rest = strings.TrimPrefix(after, fmt.Sprintf("%q", value))
				if rest == after {
					t.Fatalf("%s, %s: %q", kind.Name, k.name, k.tag)
				}
			}
			_, itself := k.value.Addr().Interface().(json.Unmarshaler)
			number := k.value.Kind() != reflect.Bool && k.value.Kind() != reflect.String && !itself
			if number != (k.tag.Get("range") != "") || itself != (k.tag.Get("want") != "") {
				t.Errorf("%s, %s: %q", kind.Name, k.name, k.tag)
			}
			if want, ok := words[k.name]; k.tag.Get("words") != "" && (!ok || !slices.Equal(k.words(), want)) {
				t.Errorf("%s, %s: %q", kind.Name, k.name, k.words())
			}
			want, tunnel := six[kind.Name]
			if !tunnel {
				want = []string{mtu(0)}
			}
			if k.name == "MTU" && (k.tag.Get("range") != fmt.Sprintf("%d..65535", minMTU4) ||
				!slices.Contains(want, k.tag.Get("range6"))) {
				t.Errorf("%s: MTU %q", kind.Name, k.tag)
			}
		}
	}
}
