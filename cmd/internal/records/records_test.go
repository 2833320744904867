package records

import (
	"errors"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/lease/leasetest"
)

// filled is a store with two nodes, a reservation and something that does not parse.
func filled() *leasetest.Store {
	s := leasetest.New("c1", []byte(`{"Network":"10.42.0.0/16"}`))
	s.PutRaw("10.42.1.0-24", []byte(`{"PublicIP":"192.0.2.1","PublicIPv6":null,"Weft":{"Node":"a"}}`), lease.TTL)
	s.PutRaw("10.42.2.0-24", []byte(`{"PublicIP":"192.0.2.2","PublicIPv6":null,"BackendType":"vxlan"}`),
		time.Hour)
	s.PutRaw("10.42.3.0-24", []byte(`{"PublicIP":"192.0.2.3","PublicIPv6":null}`), 0)
	s.PutRaw("10.42.4.0-24", []byte(`nonsense`), 0)
	return s
}

func TestList(t *testing.T) {
	l, err := List(t.Context(), filled(), "a test")
	if err != nil {
		t.Fatal(err)
	}
	if l.Network != "10.42.0.0/16" || l.Source != "a test" || len(l.Leases) != 3 || len(l.Rejected) != 1 {
		t.Fatalf("%+v", l)
	}
	a, b, c := l.Leases[0], l.Leases[1], l.Leases[2]
	if a.Node != "a" || a.Backend != "udp" || time.Until(a.Expires).Round(time.Minute) != lease.TTL {
		t.Errorf("%+v", a)
	}
	if b.Node != "" || b.Backend != "vxlan" || b.Reservation || !c.Reservation || !c.Expires.IsZero() {
		t.Errorf("%+v %+v", b, c)
	}
	if r := l.Rejected[0]; r.Key != "10.42.4.0-24" || r.Reason != "bad_value" {
		t.Errorf("%+v", r)
	}
}

func TestRelease(t *testing.T) {
	allow := func(lease.Record) error { return nil }
	refuse := func(r lease.Record) error {
		if r.Node() == "a" {
			return errors.New("in use")
		}
		return nil
	}
	for _, tt := range []struct {
		name   string
		req    control.ReleaseRequest
		refuse func(lease.Record) error
		is     error
		word   string
		gone   string
	}{
		{"a flannel node's", control.ReleaseRequest{Subnet: "10.42.2.0/24"}, refuse, nil, "", "10.42.2.0-24"},
		{"by its key", control.ReleaseRequest{Subnet: "10.42.3.0-24"}, refuse, nil, "", "10.42.3.0-24"},
		{"in use", control.ReleaseRequest{Subnet: "10.42.1.0/24"}, refuse, control.ErrRefused, "in use", ""},
		{"in use, forced", control.ReleaseRequest{Subnet: "10.42.1.0/24", Force: true}, refuse, nil, "",
			"10.42.1.0-24"},
		{"absent", control.ReleaseRequest{Subnet: "10.42.9.0/24"}, allow, control.ErrNotFound, "10.42.9.0/24", ""},
		{"nonsense", control.ReleaseRequest{Subnet: "x"}, allow, nil, "x", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := filled()
			d, err := Release(t.Context(), s, tt.req, tt.refuse)
			if tt.gone == "" {
				if err == nil || !strings.Contains(err.Error(), tt.word) || tt.is != nil && !errors.Is(err, tt.is) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || !d.Record.Subnet.IsValid() || s.Value(tt.gone) != nil {
				t.Errorf("%v %+v %q", err, d, s.Value(tt.gone))
			}
		})
	}
}

func TestAnOwnerThatRenewsKeepsItsRecord(t *testing.T) {
	s := filled()
	_, err := Release(t.Context(), s, control.ReleaseRequest{Subnet: "10.42.1.0/24"}, func(lease.Record) error {
		s.PutRaw("10.42.1.0-24", []byte(`{"PublicIP":"192.0.2.1","PublicIPv6":null,"Weft":{"Node":"a"}}`),
			lease.TTL)
		return nil
	})
	if !errors.Is(err, control.ErrRefused) || s.Value("10.42.1.0-24") == nil {
		t.Errorf("got %v", err)
	}
}
