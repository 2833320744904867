package redact

import (
	"bytes"
	"encoding/json"
)

// JSON replaces the value of each member for which by says so, in a JSON text or in any that holds some. The
// JSON may itself be a string of other JSON, and need not be valid. by gets the member's value if that is a
// string. Values that cannot be a secret stay: null, true, false and "".
func JSON(text []byte, by func(name, value string) (with string, replace bool)) []byte {
	var out []byte
	done := 0 // so much of text is in out
	for i := 0; ; {
		q := bytes.IndexByte(text[i:], '"')
		if q < 0 {
			break
		}
		s := jsonString{text: text, mark: backslashes(text[done:i+q]) + 1}
		i += q + 1
		name, next := s.content(i, '\n')
		if next < 0 || s.mark&(s.mark-1) != 0 { // no mark of any depth: 1, 2, 4 … with its backslashes
			continue
		}
		colon := s.space(next)
		if colon == len(text) || text[colon] != ':' {
			continue
		}
		from := s.space(colon + 1)
		mark := text[next-s.mark : next]
		held := ""
		if end, ok := s.quoted(from); ok {
			held = s.unquote(bytes.TrimSuffix(text[from+s.mark:end], mark))
		}
		with, replace := by(s.unquote(name), held)
		if !replace {
			continue
		}
		to := s.value(from)
		switch value := text[from:to]; string(value) {
		case "", "null", "true", "false", string(mark) + string(mark):
			continue
		}
		out = append(append(append(append(out, text[done:from]...), mark...), s.quote(with)...), mark...)
		i, done = to, to
	}
	return append(out, text[done:]...)
}

// jsonString reads JSON at one depth: mark is the length of its quotation mark with the backslashes before
// that.
type jsonString struct {
	text []byte
	mark int
}

// backslashes counts those at the end of text.
func backslashes(text []byte) int { return len(text) - len(bytes.TrimRight(text, `\`)) }

// content returns what a string that begins at from holds, and where the text goes on behind it: -1 if the
// string does not end, or not before stop.
func (s jsonString) content(from int, stop byte) ([]byte, int) {
	for i := from; i < len(s.text) && s.text[i] != stop; i++ {
		if s.text[i] != '"' {
			continue
		}
		n := backslashes(s.text[from:i])
		if (n+1)%s.mark != 0 {
			return nil, -1 // the string around it ends
		}
		if (n+1)%(2*s.mark) == s.mark { // an even number of backslashes is its own
			return s.text[from : i-s.mark+1], i + 1
		}
	}
	return nil, -1
}

// space returns where blanks end that begin at i. Those within a string are escaped.
func (s jsonString) space(i int) int {
	for i < len(s.text) {
		n := len(s.text[i:]) - len(bytes.TrimLeft(s.text[i:], `\`))
		switch {
		case bytes.IndexByte([]byte(" \t\r\n"), s.text[i]) >= 0:
			i++
		case n > 0 && n < s.mark && i+n < len(s.text) && bytes.IndexByte([]byte("nrt"), s.text[i+n]) >= 0:
			i += n + 1
		default:
			return i
		}
	}
	return i
}

// value returns where a value ends that begins at i, or what is left of it.
func (s jsonString) value(i int) int {
	if end, ok := s.quoted(i); ok {
		return end
	}
	for open := 0; i < len(s.text); i++ {
		switch c := s.text[i]; c {
		case '{', '[':
			open++
		case '}', ']':
			if open--; open < 0 {
				return i
			}
			if open == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if open == 0 {
				return i
			}
		case '"', '\\':
			end, ok := s.quoted(i)
			switch {
			case ok && open > 0:
				i = end - 1
			case c == '"' || open == 0:
				return i
			}
		}
	}
	return i
}

// quoted returns where a string ends that begins at i with its mark, and whether one does. A string that does
// not end goes to the end of its line.
func (s jsonString) quoted(i int) (int, bool) {
	from := i + s.mark
	if from > len(s.text) || s.text[from-1] != '"' || backslashes(s.text[i:from-1]) != s.mark-1 {
		return i, false
	}
	if _, next := s.content(from, 0); next >= 0 {
		return next, true
	}
	end := bytes.IndexByte(s.text[from:], '\n')
	if end < 0 {
		return len(s.text), true
	}
	return from + end, true
}

// quote returns text as it stands in a string of JSON at the depth of s.
func (s jsonString) quote(text string) string {
	for m := s.mark; m > 0; m /= 2 {
		b, _ := json.Marshal(text) // a string can be written
		text = string(b[1 : len(b)-1])
	}
	return text
}

// unquote returns the text that stands in a string of JSON, at any depth.
func (s jsonString) unquote(content []byte) string {
	name := string(content)
	for m := s.mark; m > 0; m /= 2 {
		var inner string
		if json.Unmarshal([]byte(`"`+name+`"`), &inner) != nil {
			break
		}
		name = inner
	}
	return name
}
