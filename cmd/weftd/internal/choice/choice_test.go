package choice

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"weft/lease"
	"weft/routing"
)

var (
	errHost    = errors.New("no underlay")
	errBackend = error(&BackendError{errors.New("no such device")})
	errText    = errors.New("not JSON")
	errGone    = errors.New("the backend ended")
)

// network returns the network 10.N.0.0/16; its text is N.
func network(t *testing.T, n string) *Network {
	t.Helper()
	c, err := lease.ParseNetworkConfig([]byte(`{"Network":"10.` + n + `.0.0/16"}`))
	if err != nil {
		t.Fatal(err)
	}
	return &Network{Network: routing.Network{NetworkConfig: c, Raw: []byte(n)}}
}

// look is one call of Next. What the caller does of it is done at once: a network that is opened runs, unless
// the next look has fails.
type look struct {
	at       time.Duration // since the start
	offer    string        // a network; "" for no answer, "!" for a fault
	fails    error         // Open, or GoBack, failed
	ended    error
	in       func(*Input)
	want     string // the action, and the network
	again    time.Duration
	why      bool // there is a reason
	shown    string
	unlooked bool // nothing is shown
}

func placed(in *Input)   { in.InPlace, in.Lease = true, lease.Held }
func faulty(in *Input)   { in.Lease, in.Fault = lease.Held, true }
func held(in *Input)     { in.Lease = lease.Held }
func reload(in *Input)   { placed(in); in.Reload = true }
func silent(in *Input)   { in.Silent = true }
func harmless(in *Input) { in.Blameless = true }

func within(subnet string, also func(*Input)) func(*Input) {
	return func(in *Input) {
		placed(in)
		in.Own = lease.Subnets{V4: netip.MustParsePrefix(subnet)}
		also(in)
	}
}

// TestNext has a row for each way in which a configuration comes into use, stays, and goes. "1" is the last
// good one, where there is one.
func TestNext(t *testing.T) {
	const s = time.Second
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	nothing := func(*Input) {}
	lost := func(in *Input) { in.Lease = lease.Lost }
	for _, tt := range []struct {
		name  string
		good  bool
		set   Choice
		looks []look
	}{
		{name: "a first start waits for the source, ever longer", looks: []look{
			{want: "wait"},
			{offer: "!", want: "wait", again: 100 * time.Millisecond, why: true},
			{offer: "!", want: "wait", again: 200 * time.Millisecond, why: true},
			{offer: "1", want: "open 1"},
			{offer: "1", in: placed, want: "keep", again: s, shown: "same"},
		}},
		{name: "a start with a last good one does not wait", good: true, looks: []look{
			{want: "back 1"},
			{in: placed, want: "keep", again: 20 * time.Millisecond, unlooked: true},
			{offer: "1", in: placed, want: "keep", again: s, shown: "same"},
		}},
		{name: "a first start whose backend does not start tries again", looks: []look{
			{want: "wait"},
			{offer: "2", want: "open 2"},
			{fails: errBackend, want: "wait", again: 5 * s, why: true},
			{offer: "2", want: "open 2"},
			{fails: errHost, want: "fail", why: true},
		}},
		{name: "the last good one does not open, and the source's may", good: true, looks: []look{
			{want: "back 1"},
			{fails: errBackend, want: "wait", why: true},
			{offer: "1", want: "back 1", again: 5 * s},
			{fails: errBackend, want: "wait", why: true},
			{offer: "!", want: "back 1", again: 5 * s},
			{fails: errBackend, want: "wait", why: true},
			{offer: "2", want: "open 2"},
			{fails: errBackend, want: "back 1", why: true},
			{fails: errBackend, want: "wait", why: true},
			{offer: "2", want: "back 1", again: 5 * s}, // it was refused just now
			{fails: errHost, want: "fail", why: true},
		}},
		{name: "a start with the last good one opens another until both were the same once", good: true,
			looks: []look{
				{want: "back 1"},
				{offer: "!", in: placed, want: "keep", again: s, shown: "fault lastgood"},
				{offer: "2", in: placed, want: "open 2"},
				{offer: "2", fails: errBackend, in: placed, want: "keep", again: s, shown: "fault lastgood"},
				{at: 4 * s, offer: "2", in: placed, want: "keep", again: s, shown: "fault lastgood"},
				{at: 6 * s, offer: "2", in: placed, want: "open 2"},
				{at: 6 * s, offer: "2", fails: errBackend, in: placed, want: "keep", again: s, shown: "fault lastgood"},
				{at: 15 * s, offer: "2", in: placed, want: "keep", again: s, shown: "fault lastgood"},
				{at: 15 * s, offer: "3", in: placed, want: "open 3"}, // another text is tried at once
				{at: 15 * s, offer: "3", in: held, want: "keep", again: s, shown: "same"},
			}},
		{name: "a change while weftd runs waits for a restart", looks: []look{
			{want: "wait"},
			{offer: "1", want: "open 1"},
			{offer: "1", in: placed, want: "keep", again: s, shown: "same"},
			{offer: "2", in: placed, want: "keep", again: s, shown: "restart"},
			{offer: "2", in: within("10.1.7.0/24", nothing), want: "keep", again: s, shown: "restart stays"},
			{offer: "!", in: placed, want: "keep", again: s, shown: "fault"},
			{offer: "1", in: placed, want: "keep", again: s, shown: "same"},
		}},
		{name: "a trial that comes into place", good: true, looks: []look{
			{want: "back 1"},
			{offer: "2", in: placed, want: "open 2"},
			{at: s, offer: "2", want: "keep", again: s, shown: "same"},
			{at: 29 * s, offer: "2", in: held, want: "keep", again: s, shown: "same"},
			{at: 30 * s, offer: "2", in: placed, want: "keep", again: s, shown: "same"},
			{at: time.Hour, offer: "2", in: faulty, want: "keep", again: s, shown: "same"},
		}},
		{name: "a trial without a lease ends after its time, and is not tried again", good: true, looks: []look{
			{want: "back 1"},
			{offer: "2", in: placed, want: "open 2"},
			{at: s, offer: "2", want: "keep", again: s, shown: "same"},
			{at: 20 * s, offer: "2", in: func(in *Input) { in.Fault = true }, want: "keep", again: s, shown: "same"},
			{at: 32 * s, offer: "2", want: "back 1", why: true},
			{at: 33 * s, offer: "2", in: placed, want: "keep", again: s, shown: "fault lastgood"},
			{at: 1000 * time.Hour, offer: "2", in: placed, want: "keep", again: s, shown: "fault lastgood"},
		}},
		{name: "a trial whose backend fails ends sooner", good: true, looks: []look{
			{want: "back 1"},
			{offer: "2", in: placed, want: "open 2"},
			{at: s, offer: "2", in: faulty, want: "keep", again: s, shown: "same"},
			{at: 3 * s, offer: "2", in: held, want: "keep", again: s, shown: "same"},
			{at: 4 * s, offer: "2", in: faulty, want: "keep", again: s, shown: "same"},
			{at: 7 * s, offer: "2", in: faulty, want: "keep", again: s, shown: "same"},
			{at: 8 * s, offer: "2", in: faulty, want: "back 1", why: true},
		}},
		{name: "a trial while the store is silent is not the configuration's fault", good: true, looks: []look{
			{want: "back 1"},
			{offer: "2", in: placed, want: "open 2"},
			{at: s, in: silent, want: "keep", again: 20 * time.Millisecond, unlooked: true},
			{at: 32 * s, in: silent, want: "back 1", why: true},
			{at: 33 * s, offer: "2", in: placed, want: "open 2"},
		}},
		{name: "there is no trial without a last good one", looks: []look{
			{want: "wait"},
			{offer: "2", want: "open 2"},
			{at: time.Hour, offer: "2", in: faulty, want: "keep", again: s, shown: "same"},
			{at: 2 * time.Hour, offer: "2", in: faulty, want: "keep", again: s, shown: "same"},
			{ended: errGone, want: "fail", why: true},
		}},
		{name: "one that ends is not tried again", good: true, looks: []look{
			{want: "back 1"},
			{offer: "2", in: placed, want: "open 2"},
			{ended: errGone, want: "back 1", why: true},
			{at: time.Hour, offer: "2", in: placed, want: "keep", again: s, shown: "fault lastgood"},
			{ended: errGone, want: "fail", why: true},
		}},
		{name: "one whose port another process has is tried again", good: true, looks: []look{
			{want: "back 1"},
			{offer: "2", in: placed, want: "open 2"},
			{ended: errGone, in: harmless, want: "back 1", why: true},
			{offer: "2", in: placed, want: "open 2"},
		}},
		{name: "a network without the node's subnet is not opened", good: true, looks: []look{
			{want: "back 1"},
			{offer: "2", in: within("10.1.7.0/24", nothing), want: "keep", again: s, shown: "fault lastgood"},
			{offer: "2", in: within("10.2.7.0/24", nothing), want: "open 2"},
		}},
		{name: "but with --renumber", good: true, set: Choice{Renumber: true}, looks: []look{
			{want: "back 1"},
			{offer: "2", in: within("10.1.7.0/24", nothing), want: "open 2"},
		}},
		{name: "the cluster assigns a subnet, and takes it back", good: true, set: Choice{Assigned: true},
			looks: []look{
				{want: "back 1"},
				{offer: "2", in: within("10.1.7.0/24", nothing), want: "keep", again: s, shown: "fault lastgood"},
				{offer: "2", in: within("10.1.7.0/24", lost), want: "open 2"},
			}},
		{name: "reload", looks: []look{
			{want: "wait"},
			{offer: "1", want: "open 1"},
			{offer: "1", in: placed, want: "keep", again: s, shown: "same"},
			{offer: "1", in: reload, want: "keep", unlooked: true},
			{offer: "!", in: reload, want: "keep", why: true, unlooked: true},
			{offer: "2", in: within("10.1.7.0/24", reload), want: "keep", why: true, unlooked: true},
			{offer: "1.", in: within("10.2.7.0/24", reload), want: "keep", why: true, unlooked: true},
			{offer: "2", in: reload, want: "open 2"},
			{offer: "2", fails: errBackend, in: reload, want: "keep", why: true, unlooked: true},
			{offer: "2", in: reload, want: "open 2"}, // it is not refused
			{offer: "1", in: placed, want: "open 1"}, // the source may have it again before both were the same
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, running, next := tt.set, (*Network)(nil), (*Network)(nil)
			for i, l := range tt.looks {
				in := Input{Now: began.Add(l.at), OpenErr: l.fails, Ended: l.ended}
				if tt.good {
					in.LastGood = network(t, "1")
				}
				if next != nil && l.fails == nil {
					running = next
				}
				next = nil
				in.Running = running
				switch l.offer {
				case "":
				case "!":
					in.Offer = Offer{Known: true, Fault: errText}
				case "1.": // in which the node would get another subnet, with a longer prefix
					n := network(t, "2")
					n.SubnetLen, n.Raw = 26, []byte(l.offer)
					in.Offer = Offer{Known: true, Network: *n}
				default:
					in.Offer = Offer{Known: true, Network: *network(t, l.offer)}
				}
				if l.in != nil {
					l.in(&in)
				}
				got := c.Next(in)
				if s := text(got); s != l.want || got.Again != l.again || (got.Why != nil) != l.why {
					t.Fatalf("look %d: %s, again after %v, because %v; want %s, %v, %v", i, s, got.Again, got.Why, l.want,
						l.again, l.why)
				}
				if s := shown(got.View); s != l.shown && got.Do == Keep {
					t.Errorf("look %d: shown %q, want %q", i, s, l.shown)
				}
				if (got.View == nil) != l.unlooked && got.Do == Keep {
					t.Errorf("look %d: shows %v", i, got.View)
				}
				if got.Do == Open || got.Do == GoBack {
					next = got.Network
				}
				if got.Do == GoBack {
					running = nil
				}
			}
		})
	}
}

func text(s Step) string {
	do := []string{Wait: "wait", Open: "open", GoBack: "back", Keep: "keep", Fail: "fail"}[s.Do]
	if s.Network != nil {
		do += " " + string(s.Network.Raw)
	}
	return do
}

func shown(v *View) (out string) {
	if v == nil {
		return ""
	}
	if fmt.Sprint(*v) == fmt.Sprint(View{}) {
		return "same"
	}
	for _, x := range []struct {
		is   bool
		word string
	}{{v.Fault != nil, "fault"}, {v.LastGood, "lastgood"}, {v.Restart, "restart"}, {v.Stays, "stays"}} {
		if x.is && out != "" {
			out += " "
		}
		if x.is {
			out += x.word
		}
	}
	return out
}

// TestRefusalWaits doubles the wait for one text, up to a bound.
func TestRefusalWaits(t *testing.T) {
	var r refusal
	var waits []time.Duration
	now := time.Unix(0, 0)
	for range 9 {
		r.add([]byte("a"), errBackend, true, now)
		waits = append(waits, r.until.Sub(now))
		if r.now([]byte("a"), r.until.Add(-1)) == nil || r.now([]byte("a"), r.until) != nil {
			t.Error("not refused until its time is over")
		}
		now = r.until
	}
	if waits[0] != retryFirst || waits[1] != 2*retryFirst || waits[8] != retryMost || !slices.IsSorted(waits) {
		t.Errorf("waits %v", waits)
	}
}
