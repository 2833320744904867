package lease

import "strings"

// Nearest returns the one of words that was most likely meant by got, or "" if none is close:
// a slip or two of the keyboard, or a word that goes on where a known one ends. Case does not
// count.
func Nearest(got string, words ...string) string {
	const longest = 64 // got may be anything
	if got == "" || len(got) > longest {
		return ""
	}
	best, least := "", max(1, len(got)/3)+1
	for _, w := range words {
		if d := editDistance(strings.ToLower(got), strings.ToLower(w)); d > 0 && d < least {
			best, least = w, d
		}
	}
	if best != "" {
		return best
	}
	for _, w := range words { // SubnetLength, for SubnetLen
		if len(w) > 3 && len(w) > len(best) && strings.HasPrefix(strings.ToLower(got), strings.ToLower(w)) &&
			!strings.EqualFold(got, w) {
			best = w
		}
	}
	return best
}

// editDistance counts the insertions, deletions, substitutions and swaps of neighbours that
// make b of a.
func editDistance(a, b string) int {
	before, last, now := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}
