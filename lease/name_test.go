package lease_test

import (
	"strings"
	"testing"

	"weft/lease"
	"weft/lease/leasetest"
)

func TestHostName(t *testing.T) {
	for host, want := range map[string]string{
		"db1": "db1", "ip-10-0-0-1.ec2.internal": "ip-10-0-0-1.ec2.internal", "Rack_7": "Rack_7",
		"": "", "localhost": "", "localhost.localdomain": "", "LOCALHOST": "", "(none)": "", "a b": "",
		strings.Repeat("x", 253): strings.Repeat("x", 253), strings.Repeat("x", 254): "",
	} {
		if got := lease.HostName(host); got != want {
			t.Errorf("HostName(%q) = %q, want %q", host, got, want)
		}
	}
}

// A record is called by the name of the Node that it is, then by its own, then by its identity.
func TestRecordName(t *testing.T) {
	r := leasetest.Record(t, "10.5.1.0/24", "3f2a", "192.0.2.1", 7)
	for _, step := range []struct {
		change func()
		want   string
	}{
		{func() {}, "3f2a"},
		{func() { r.Weft.Name = "db1" }, "db1"},
		{func() { r.Kube = &lease.KubeNode{Name: "worker-1"} }, "worker-1"},
		{func() { r.Kube, r.Weft = nil, nil }, ""},
	} {
		if step.change(); r.Name() != step.want {
			t.Errorf("called %q, want %q", r.Name(), step.want)
		}
	}
	if r.Called() != "10.5.1.0/24" {
		t.Errorf("a flannel node is called %q", r.Called())
	}
}

// Another name alone makes another record, which has to be written.
func TestNameIsPartOfTheRecord(t *testing.T) {
	a := leasetest.Record(t, "10.5.1.0/24", "n", "192.0.2.1", 7)
	b := leasetest.Record(t, "10.5.1.0/24", "n", "192.0.2.1", 7)
	if b.Weft.Name = "db1"; a.Attrs.Equal(b.Attrs) {
		t.Error("records with different names are equal")
	}
}
