package custody

import (
	"slices"

	"weft/cmd/internal/rights"
)

// stored is what the service manager's store has of one Item: names there, and duplicates of what they stand for, by which it is known again.
type stored struct {
	label string   // "" for nothing
	at    []string // of its descriptors
	fds   []int    // as at; fewer if that is not known
}

// names are all that s has in the store.
func (s stored) names() []string {
	if s.label == "" {
		return nil
	}
	return append([]string{s.label}, s.at...)
}

// of returns, for each of fds, the name under which s has it; "" for what s does not have. Without ok nobody can say.
func (s stored) of(fds []int, same func(a, b int) (bool, error)) (at []string, ok bool) {
	at = make([]string, len(fds))
	if s.label == "" {
		return at, true
	}
	if len(s.fds) < len(s.at) {
		return at, false
	}
	for k, fd := range fds {
		for j, name := range s.at {
			is, err := same(fd, s.fds[j])
			if err != nil {
				return make([]string, len(fds)), false
			}
			if is {
				at[k] = name
				break
			}
		}
	}
	return at, true
}

// dup returns s with descriptors of its own, or without any.
func (s stored) dup() stored {
	own, err := rights.Duplicate(s.fds)
	if err != nil { // out of descriptors: then what is kept next takes its place, and is not compared with it
		own = nil
	}
	return stored{label: s.label, at: slices.Clone(s.at), fds: own}
}
