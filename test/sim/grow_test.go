package sim

import (
	"reflect"
	"strings"
	"testing"
)

// TestGrownFindsTables wants every kind of table found, below pointers, interfaces, maps and slices, and texts passed over.
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
		"":                  &outer{text: []byte("long enough"), any: loop, inners: map[string]*inner{"a": {table: map[int]bool{1: true}}}},
		"x.any":             &outer{any: []int{1, 2, 3}},
		"x.any.next.table":  outer{any: inner{next: &inner{table: large}}},
		"x.inners[].table":  &outer{inners: map[string]*inner{"a": {table: large}}},
		"x[][].any[].table": [1][]outer{{{any: []inner{{}, {table: large}}}}},
	} {
		where, n := grown(reflect.ValueOf(v), "x", 2, map[uintptr]bool{})
		if where != want || want != "" && n != 3 {
			t.Errorf("%s with %d elements, want %q", where, n, want)
		}
	}
	if s := strings.Repeat("x", 10); s != "" {
		if where, _ := grown(reflect.ValueOf(&s), "x", 2, map[uintptr]bool{}); where != "" {
			t.Errorf("a text is a table: %s", where)
		}
	}
}
