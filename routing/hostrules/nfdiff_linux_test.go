package hostrules

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// longest is the length of the longest common subsequence, by trying everything.
func longest(a, b []string) int {
	switch {
	case len(a) == 0 || len(b) == 0:
		return 0
	case a[0] == b[0]:
		return 1 + longest(a[1:], b[1:])
	}
	return max(longest(a[1:], b), longest(a, b[1:]))
}

// What stays of a chain is in both lists in the same order, and no more of it could stay.
func TestAsManyRulesAsPossibleStay(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	words := func() (out []string) {
		for range r.IntN(8) {
			out = append(out, string(rune('a'+r.IntN(3))))
		}
		return out
	}
	for range 2000 {
		a, b := words(), words()
		var have []nfRule
		var want []nftRule
		for i, w := range a {
			have = append(have, nfRule{handle: uint64(100 + i), comment: w})
		}
		for _, w := range b {
			want = append(want, nftRule{form: formOf(nil, w)})
		}
		stay := kept(have, want)
		for i, p := range stay {
			if formOf(nil, have[p.handle-100].comment) != want[p.want].form {
				t.Fatalf("%q, %q: %v pairs what differs", a, b, stay)
			}
			if i > 0 && (p.handle <= stay[i-1].handle || p.want <= stay[i-1].want) {
				t.Fatalf("%q, %q: %v is out of order", a, b, stay)
			}
		}
		if len(stay) != longest(a, b) {
			t.Fatalf("%q, %q: %d stay, want %d", a, b, len(stay), longest(a, b))
		}
		if gone := without(have, stay); len(gone) != len(a)-len(stay) || slices.ContainsFunc(gone, func(r nfRule) bool {
			return slices.ContainsFunc(stay, func(p pair) bool { return p.handle == r.handle })
		}) {
			t.Fatalf("%q, %q: %v stay, and %v go", a, b, stay, gone)
		}
	}
}
