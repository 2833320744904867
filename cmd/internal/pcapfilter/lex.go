package pcapfilter

import (
	"fmt"
	"strings"
)

// token is a word of a filter, with where it stands.
type token struct {
	text string
	at   int // bytes from the start
}

// lex cuts a filter into words. Brackets and the signs for not, and, or are words of their own.
func lex(s string) (words []token, err error) {
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case c == '(' || c == ')' || c == '!':
			words = append(words, token{s[i : i+1], i})
			i++
		case c == '&' || c == '|':
			if i+1 == len(s) || s[i+1] != c {
				return nil, fmt.Errorf("filter: %q at byte %d: only && and || are known (tests of single bits, as in "+
					"tcp[13] & 2, are not)", s[i:i+1], i)
			}
			words = append(words, token{s[i : i+2], i})
			i += 2
		default:
			n := strings.IndexAny(s[i:], " \t\n\r()!&|")
			if n < 0 {
				n = len(s) - i
			}
			words = append(words, token{s[i : i+n], i})
			i += n
		}
	}
	return words, nil
}
