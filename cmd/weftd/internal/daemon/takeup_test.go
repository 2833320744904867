package daemon

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weft/lease"
)

// A configuration on trial is given up if it is not in place in time, sooner if its backend reports an error, and
// never once it has been in place.
func TestATrialEnds(t *testing.T) {
	type look struct {
		after               time.Duration
		proven, held, fault bool
		want                bool
	}
	for name, looks := range map[string][]look{
		"it comes into place":           {{after: time.Second}, {after: 29 * time.Second, held: true}, {after: time.Hour, proven: true, held: true}, {after: 2 * time.Hour, held: true, fault: true}},
		"it never does":                 {{after: 29 * time.Second, held: true}, {after: 31 * time.Second, held: true, want: true}},
		"it gets no lease":              {{after: 29 * time.Second}, {after: 31 * time.Second, want: true}},
		"its backend fails":             {{after: time.Second, held: true, fault: true}, {after: 3 * time.Second, held: true, fault: true}, {after: 5 * time.Second, held: true, fault: true, want: true}},
		"its backend fails for a while": {{after: time.Second, held: true, fault: true}, {after: 3 * time.Second, held: true}, {after: 5 * time.Second, held: true, fault: true}, {after: 7 * time.Second, proven: true}},
		"it fails without a lease":      {{after: time.Second, fault: true}, {after: 20 * time.Second, fault: true}},
	} {
		began := time.Now()
		tr := trial{on: true, began: began}
		for _, l := range looks {
			if got := tr.failed(l.proven, l.held, l.fault, began.Add(l.after)); got != l.want {
				t.Errorf("%s: after %s: %v", name, l.after, got)
			}
		}
		none := trial{began: began}
		if none.failed(false, false, true, began.Add(time.Hour)) {
			t.Errorf("%s: given up without a last good one", name)
		}
	}
}

// A configuration whose backend could not be made is tried again after ever longer waits. One that was tried and
// did not work is not tried again. Another text is tried at once.
func TestARefusedConfigIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, why := &Daemon{}, errors.New("nosuch")
		a, b := []byte("a"), []byte("b")
		var waits []time.Duration
		for range 9 {
			d.refuse(a, why, true)
			if d.refusedNow(a) != why || d.refused(b) {
				t.Fatal("a is not refused, or b is")
			}
			began := time.Now()
			for d.refused(a) {
				time.Sleep(time.Second)
			}
			waits = append(waits, time.Since(began))
		}
		if waits[0] != retryFirst || waits[1] != 2*retryFirst || waits[8] != retryMost {
			t.Errorf("waits %v", waits)
		}
		d.refuse(b, why, false)
		time.Sleep(1000 * time.Hour)
		if !d.refused(b) || d.refused(a) {
			t.Error("b is not refused for good, or a still is")
		}
	})
}

// A network that does not contain the node's subnet would cut off its pods, and is adopted only if the operator
// asks for that.
func TestANetworkWithoutTheNodesSubnetIsUnfit(t *testing.T) {
	own := lease.Subnets{V4: netip.MustParsePrefix("10.42.7.0/24"), V6: netip.MustParsePrefix("fd00:7::/64")}
	for _, tt := range []struct {
		network string
		want    string
	}{
		{`{"Network":"10.42.0.0/16"}`, ""},
		{`{"Network":"10.0.0.0/8","SubnetLen":26}`, ""}, // another subnet, but flannel's users may
		{`{"Network":"10.43.0.0/16"}`, "Network is 10.43.0.0/16"},
		{`{"Network":"10.42.7.128/25"}`, "Network is 10.42.7.128/25"},
		{`{"Network":"10.42.0.0/16","EnableIPv6":true,"IPv6Network":"fd01::/32"}`, "IPv6Network is fd01::/32"},
		{`{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00::/16"}`, ""},
	} {
		g := &generation{member: &held{status: lease.Status{State: lease.Held, Own: lease.Record{Subnets: own}}}}
		d := &Daemon{source: &etcdSource{}}
		if err := d.unfit(g, parse(t, tt.network)); err != nil {
			t.Errorf("%s before anything was served: %v", tt.network, err)
		}
		g.prove()
		err := d.unfit(g, parse(t, tt.network))
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "--renumber")) {
			t.Errorf("%s: %v", tt.network, err)
		}
		if d.cfg.Renumber = true; d.unfit(g, parse(t, tt.network)) != nil {
			t.Errorf("%s: not with --renumber either", tt.network)
		}
	}
}

// held is a member with a status.
type held struct {
	member
	status lease.Status
}

func (h *held) Status() lease.Status { return h.status }
