package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/events"
	"weft/lease"
)

// What peers do is in the history: each by itself, or many together.
func TestPeersAreInTheHistory(t *testing.T) {
	at := func(i int, f func(*lease.Record)) lease.Record {
		r := lease.Record{Subnets: lease.Subnets{V4: netip.MustParsePrefix(fmt.Sprintf("10.42.%d.0/24", i))}}
		r.PublicIP = netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", i))
		r.Weft = &lease.Weft{Node: fmt.Sprint("id", i), Name: fmt.Sprint("host", i)}
		if f != nil {
			f(&r)
		}
		return r
	}
	var many []lease.Record
	for i := range 100 {
		many = append(many, at(i+100, nil))
	}
	dir := t.TempDir()
	d := &Daemon{}
	history, _, ended := keepHistory(dir, slog.New(slog.DiscardHandler))
	d.process.history = history
	moved := func(r *lease.Record) { r.PublicIP = netip.MustParseAddr("192.0.2.99") }
	d.tellPeers([]lease.Record{at(1, nil), at(2, nil), at(3, nil)},
		[]lease.Record{at(2, moved), at(3, nil), at(4, nil)})
	d.tellPeers(nil, many)
	ended(errors.New("all is lost"))
	got, err := events.Read(dir, time.Time{})
	if err != nil || len(got) != 5 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, want := range []string{
		"peer_gone addr=192.0.2.1 id=id1 peer=host1 subnets=10.42.1.0/24",
		"peer_come addr=192.0.2.4 id=id4 peer=host4 subnets=10.42.4.0/24",
		"peer_changed addr=192.0.2.99 changes=address 192.0.2.99, before 192.0.2.2 id=id2 peer=host2 " +
			"subnets=10.42.2.0/24",
		"peer_come among=host100, host101, host102, host103, host104, host105, host106, host107 count=100",
		"stopped reason=all is lost",
	} {
		text := string(got[i].Kind)
		for _, k := range []string{"addr", "among", "changes", "count", "id", "peer", "reason", "subnets"} {
			if v, ok := got[i].Details[k]; ok {
				text += " " + k + "=" + v
			}
		}
		if text != want {
			t.Errorf("event %d is %q, want %q", i, text, want)
		}
	}
}

func TestLateRenewalIsSaid(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	now := time.Now()
	ends := func(in time.Duration) (r lease.Record) {
		r.Expires = now.Add(in)
		return r
	}
	var r renewals
	for _, in := range []time.Duration{61 * time.Minute, 24 * time.Hour, 24 * time.Hour, 0} {
		r.tell(ends(in), time.Hour, log)
	}
	r = renewals{}
	if r.tell(lease.Record{}, time.Hour, log); out.Len() > 0 {
		t.Errorf("a renewal in time: %s", &out)
	}
	r.tell(ends(10*time.Minute), time.Hour, log)
	if r.tell(ends(24*time.Hour), time.Hour, log); !strings.Contains(out.String(), "event=lease_renewed_late ") {
		t.Error("a late renewal is not said")
	}
}
