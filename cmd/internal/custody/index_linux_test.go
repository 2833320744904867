package custody

import (
	"testing"
)

// A write that was cut off leaves what was in force before, and an index without a good slot says so.
func TestTheIndexOutlivesACutWrite(t *testing.T) {
	x, err := newIndex()
	if err != nil {
		t.Fatal(err)
	}
	defer x.close()
	if got, err := x.read(); err == nil {
		t.Errorf("an empty one has %v", got)
	}
	first, second := []entry{{Name: "first", Numbers: []uint64{1}}},
		[]entry{{Name: "second", Numbers: []uint64{2, 3}}}
	for _, e := range [][]entry{first, second} {
		if err := x.write(e); err != nil {
			t.Fatal(err)
		}
	}
	name := func() string {
		t.Helper()
		got, err := openIndexAgain(x).read()
		if err != nil || len(got) != 1 {
			return "none"
		}
		return got[0].Name
	}
	if got := name(); got != "second" {
		t.Errorf("%s is in force", got)
	}
	newest := slotAt(x.sequence)
	for what, at := range map[string]int64{"version": 0, "length": 5, "sequence": 8, "checksum": 16,
		"body": slotHeader + 3} {
		var b [1]byte
		if _, err := x.f.ReadAt(b[:], newest+at); err != nil {
			t.Fatal(err)
		}
		for _, flip := range []struct {
			with byte
			want string
		}{{0x55, "first"}, {0, "second"}} {
			if _, err := x.f.WriteAt([]byte{b[0] ^ flip.with}, newest+at); err != nil {
				t.Fatal(err)
			}
			if got := name(); got != flip.want {
				t.Errorf("%s with %#x: %s is in force", what, flip.with, got)
			}
		}
	}
	if err := x.write(first); err != nil || name() != "first" {
		t.Errorf("%v: %s is in force", err, name())
	}
}

// openIndexAgain is x as another program finds it.
func openIndexAgain(x *index) *index { return &index{f: x.f} }
