package sim

import "slices"

// Shrink returns the shortest script that it finds that breaks the same rule in the same way as f: it leaves
// out operations, fewer and fewer at a time, as long as that goes.
func Shrink(f *Fault) Script {
	s, seen := f.Script, new(Seen)
	fails := func(ops []Op) bool {
		t := s
		t.Ops = ops
		r := Run(t, false, seen)
		return r.Fault != nil && r.Fault.Rule == f.Rule && r.Fault.format == f.format
	}
	for size := len(s.Ops) / 2; size > 0; {
		shorter := false
		for i := 0; i+size <= len(s.Ops); {
			rest := slices.Concat(s.Ops[:i], s.Ops[i+size:])
			if fails(rest) {
				s.Ops, shorter = rest, true
				continue
			}
			i += size
		}
		if !shorter || size > len(s.Ops) {
			size /= 2
		}
	}
	return s
}
