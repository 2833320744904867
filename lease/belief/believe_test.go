package belief_test

import (
	"strings"
	"testing"
	"time"

	"weft/lease"
	"weft/lease/belief"
	"weft/lease/leasetest"
)

func TestBelieve(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := leasetest.Record(t, "10.244.1.0/24", "a", "192.0.2.1", 3)
	b := leasetest.Record(t, "10.244.2.0/24", "b", "192.0.2.2", 4)
	a.Expires, b.Expires = now.Add(20*time.Hour), now.Add(10*time.Hour)
	config := []byte(`{}`)
	full := lease.Snapshot{ClusterID: "one", Revision: 10, Config: config, Records: leasetest.Pointers(a, b)}
	tests := []struct {
		name  string
		next  lease.Snapshot
		want  string // what is left a second after it
		alarm string
	}{
		{"removal", lease.Snapshot{ClusterID: "one", Revision: 11, Config: config, Records: leasetest.Pointers(a)},
			"10.244.1.0/24", ""},
		{"removal at the same revision", lease.Snapshot{ClusterID: "one", Revision: 10, Config: config,
			Records: leasetest.Pointers(a)}, "10.244.1.0/24", ""},
		{"all removed", lease.Snapshot{ClusterID: "one", Revision: 12, Config: config}, "", ""},
		{"another cluster", lease.Snapshot{ClusterID: "two", Revision: 99, Config: config},
			"10.244.1.0/24 10.244.2.0/24", "cluster"},
		{"lower revision", lease.Snapshot{ClusterID: "one", Revision: 9, Config: config},
			"10.244.1.0/24 10.244.2.0/24", "10"},
		{"no config", lease.Snapshot{ClusterID: "one", Revision: 12}, "10.244.1.0/24 10.244.2.0/24",
			"configuration"},
		{"another cluster, nothing missing", lease.Snapshot{ClusterID: "two", Revision: 1, Config: config,
			Records: leasetest.Pointers(a, b)}, "10.244.1.0/24 10.244.2.0/24", ""},
		{"owner has another subnet", lease.Snapshot{ClusterID: "two", Config: config,
			Records: leasetest.Pointers(leasetest.Record(t, "10.244.9.0/24", "a", "192.0.2.1", 1))},
			"10.244.2.0/24 10.244.9.0/24",
			"another cluster"},
		{"subnet has another owner", lease.Snapshot{ClusterID: "two", Config: config,
			Records: leasetest.Pointers(leasetest.Record(t, "10.244.1.0/24,fd00::/64", "c", "192.0.2.3", 1))},
			"10.244.1.0/24,fd00::/64 10.244.2.0/24", "another cluster"},
		{"garbage", lease.Snapshot{ClusterID: "one", Revision: 11, Config: config, Records: leasetest.Pointers(b),
			Bad: []lease.Rejected{{Key: "10.244.1.0-24"}}}, "10.244.1.0/24 10.244.2.0/24", "10.244.1.0-24"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := belief.Believe(belief.Memory{}, full, now)
			m := belief.Believe(before, tt.next, now.Add(time.Minute))
			if got := remembered(m.Expire(now.Add(time.Minute + time.Second))); got != tt.want {
				t.Errorf("left %q, want %q", got, tt.want)
			}
			if !strings.Contains(m.Alarm(), tt.alarm) || (m.Alarm() == "") != (tt.alarm == "") {
				t.Errorf("alarm %q, want %q", m.Alarm(), tt.alarm)
			}
			if got := remembered(before); got != "10.244.1.0/24 10.244.2.0/24" {
				t.Errorf("the memory before was changed: %q", got)
			}
		})
	}
}

func remembered(m belief.Memory) string {
	var s []string
	for _, r := range m.Records() {
		s = append(s, r.Subnets.String())
	}
	return strings.Join(s, " ")
}

func TestBelieveHoldsUntilTheLastKnownEnd(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := leasetest.Record(t, "10.244.1.0/24", "a", "192.0.2.1", 3)
	b := leasetest.Record(t, "10.244.2.0/24", "b", "192.0.2.2", 4)
	a.Expires = now.Add(2 * time.Hour) // of b the store has not said
	config := []byte(`{}`)
	m := belief.Believe(belief.Memory{}, lease.Snapshot{ClusterID: "one", Revision: 10, Config: config,
		Records: leasetest.Pointers(a, b)}, now)
	wiped := func(rev int64) lease.Snapshot {
		return lease.Snapshot{ClusterID: "two", Revision: rev, Config: config}
	}
	m = belief.Believe(m, wiped(1), now.Add(time.Hour))
	m = belief.Believe(m, wiped(2), now.Add(90*time.Minute)) // the new store by now, but it never had them
	if got := remembered(m); got != "10.244.1.0/24 10.244.2.0/24" {
		t.Fatalf("left %q", got)
	}
	if next := m.NextEnd(); !next.Equal(a.Expires) {
		t.Errorf("next end %s, want %s", next, a.Expires)
	}
	if got := remembered(m.Expire(now.Add(2 * time.Hour))); got != "10.244.2.0/24" {
		t.Errorf("left %q after two hours", got)
	}
	m = m.Expire(now.Add(24 * time.Hour))
	if got := remembered(m); got != "" || m.Alarm() != "" || !m.NextEnd().IsZero() {
		t.Errorf("left %q after a day, alarm %q", got, m.Alarm())
	}
}

func TestBelieveTheNewStoreAboutWhatItHad(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := leasetest.Record(t, "10.244.1.0/24", "a", "192.0.2.1", 3)
	b := leasetest.Record(t, "10.244.2.0/24", "b", "192.0.2.2", 4)
	config := []byte(`{}`)
	at := func(cluster string, rev int64, records ...lease.Record) lease.Snapshot {
		return lease.Snapshot{ClusterID: cluster, Revision: rev, Config: config,
			Records: leasetest.Pointers(records...)}
	}
	m := belief.Believe(belief.Memory{}, at("one", 10, a, b), now)
	m = belief.Believe(m, at("two", 1), now)
	m = belief.Believe(m, at("two", 2, a), now) // a is back
	m = belief.Believe(m, at("two", 3), now)    // and leaves in good order
	if got := remembered(m.Expire(now.Add(time.Second))); got != "10.244.2.0/24" {
		t.Errorf("left %q, want only what the new store never had", got)
	}
}

// TestARemovalCountsASecondLater: a record that a living node puts back was never missed; one that another
// takes is, at once.
func TestARemovalCountsASecondLater(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := leasetest.Record(t, "10.244.1.0/24", "a", "192.0.2.1", 3)
	a.Expires = now.Add(20 * time.Hour)
	at := func(rev int64, records ...lease.Record) lease.Snapshot {
		return lease.Snapshot{ClusterID: "one", Revision: rev, Config: []byte(`{}`),
			Records: leasetest.Pointers(records...)}
	}
	m := belief.Believe(belief.Believe(belief.Memory{}, at(10, a), now), at(11), now)
	again := belief.Believe(m, at(11), now.Add(900*time.Millisecond)) // which does not prolong it
	if got := remembered(again); got != "10.244.1.0/24" || again.Alarm() != "" ||
		!again.NextEnd().Equal(now.Add(time.Second)) {
		t.Errorf("left %q, alarm %q, until %s", got, again.Alarm(), again.NextEnd())
	}
	if got := remembered(again.Expire(now.Add(time.Second))); got != "" {
		t.Errorf("left %q after a second", got)
	}
	back := belief.Believe(again, at(12, a), now.Add(950*time.Millisecond))
	if got := remembered(back.Expire(now.Add(time.Hour))); got != "10.244.1.0/24" {
		t.Errorf("left %q after it was put back", got)
	}
	taken := belief.Believe(m, at(12, leasetest.Record(t, "10.244.1.0/24,fd00::/64", "b", "192.0.2.2", 12)), now)
	if got := remembered(taken); got != "10.244.1.0/24,fd00::/64" {
		t.Errorf("left %q after another took it", got)
	}
}
