package sim

import (
	"reflect"
	"strings"
	"testing"
)

// TestGrownFindsTables wants every kind of table found, below pointers, interfaces, maps and slices, and
// texts passed over.
func TestGrownFindsTables(t *testing.T) {
	type inner struct {
		table map[int]bool
		next  *inner
	}
	type outer struct {
		text   []byte
		any    any
		inners map[string]*inner
	}
	large := map[int]bool{1: true, 2: true, 3: true}
	loop := &inner{}
	loop.next = loop
	for want, v := range map[string]any{
		"": &outer{text: []byte("long enough"), any: loop,
			inners: map[string]*inner{"a": {table: map[int]bool{1: true}}}},
		".any":             &outer{any: []int{1, 2, 3}},
		".any.next.table":  outer{any: inner{next: &inner{table: large}}},
		".inners[].table":  &outer{inners: map[string]*inner{"a": {table: large}}},
		"[][].any[].table": [1][]outer{{{any: []inner{{}, {table: large}}}}},
	} {
		n, where := grown(reflect.ValueOf(v), 2, map[uintptr]bool{})
		if where != want || (n == 3) != (want != "") {
			t.Errorf("%s with %d elements, want %q", where, n, want)
		}
	}
	s := strings.Repeat("x", 10)
	if n, where := grown(reflect.ValueOf(&s), 2, map[uintptr]bool{}); n > 0 {
		t.Errorf("a text is a table: %s", where)
	}
}
