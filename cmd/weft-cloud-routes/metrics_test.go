package main

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"weft/routing/routehook"
)

// reads is a Programmer that tells of some tables.
type reads struct {
	m      *metrics
	tables []string
	err    error
}

func (r *reads) Program(context.Context, []routehook.Route, bool) (map[netip.Prefix]error, error) {
	for _, table := range r.tables {
		r.m.sized(table, "ipv4", 1)
	}
	return nil, r.err
}

// A table that is not there any more, or has lost its mark, is in no metric; one that could not be read is.
func TestTablesThatAreGone(t *testing.T) {
	m := newMetrics()
	r := &reads{m: m}
	for _, c := range []struct {
		tables []string
		err    error
		want   int
	}{{[]string{"a", "b"}, nil, 2}, {[]string{"a"}, errors.New("i/o timeout"), 2}, {[]string{"a"}, nil, 1}} {
		r.tables, r.err = c.tables, c.err
		if _, err := (forgetful{r, m}).Program(t.Context(), nil, false); !errors.Is(err, c.err) {
			t.Error(err)
		}
		families, err := m.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, f := range families {
			if f.GetName() == "weft_cloud_table_routes" {
				got = len(f.GetMetric())
			}
		}
		if got != c.want {
			t.Errorf("after %q, %v: %d series, want %d", c.tables, c.err, got, c.want)
		}
	}
}
