package test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// hostile are records that no node writes, with the reason that each is refused for.
func hostile() []struct{ key, value, reason string } {
	sane := func(last string) string { return `{"PublicIP":"198.18.7.` + last + `","PublicIPv6":null}` }
	return []struct{ key, value, reason string }{
		{"10.42.201.0-24", `{"PublicIP":`, "bad_value"},
		{"10.42.202.0-24", `{"PublicIP":"nonsense"}`, "bad_value"},
		{"10.42.203.0-24", `{"PublicIP":"198.18.7.3","Weft":{"Node":"` + strings.Repeat("x", 100<<10) + `"}}`, "bad_value"},
		{"10.42.204.0-24/extra", sane("4"), "bad_key"},
		{"nonsense", sane("5"), "bad_key"},
		{"10.42.206.1-24", sane("6"), "bad_key"},
		{"10.1.2.0-24", sane("7"), "outside_network"},
		{"10.42.208.0-23", sane("8"), "wrong_length"},
		{"198.18.0.0-24", sane("10"), "outside_network"}, // the underlay's own addresses
		{"10.42.212.0-24", `{"PublicIP":"127.0.0.1","PublicIPv6":null}`, "bad_address"},
		{"10.42.213.0-24", `{"PublicIPv6":null}`, "bad_address"},
	}
}

// Garbage, foreign and hostile records are left out, and harm nothing else: the other peers stay
// reachable without a packet lost, and weft lease list names every such record with its reason.
func TestHostileRecordsCostOnlyThemselves(t *testing.T) {
	counting(t)
	l := up(t, lab.Spec{})
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	reach(t, await.Patience, a, b, 4)
	stream := paced(t, a, b, probe.PacedPlan{Count: 3000})
	for _, h := range hostile() {
		put(t, l.Store, prefix+"/subnets/"+h.key, h.value, 0)
	}
	put(t, l.Store, prefix+"/subnets/10.42.220.0-24", `{"PublicIP":"198.18.7.20","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}}`, 0)
	for _, n := range l.Nodes() {
		await.OK(t, "all refused by "+n.Name, func() error {
			all, err := weftTells[leasesJSON](t, n, "lease", "list")
			return errors.Join(err, refuses(all))
		})
		status(t, n, await.Patience, func(s statusJSON) error {
			if notes := fmt.Sprint(s.Backend.Notes); !strings.Contains(notes, "vxlan") || s.Backend.Error != "" || !s.Ready {
				return fmt.Errorf("notes %s, error %q, ready %v %q", notes, s.Backend.Error, s.Ready, s.NotReady)
			}
			return nil
		})
	}
	if r := stream.Wait(); r.Lost > 0 {
		t.Errorf("%s", r)
	}
	reach(t, await.Patience, b, a, 4)
	for _, h := range hostile() {
		del(t, l.Store, prefix+"/subnets/"+h.key)
	}
	status(t, l.Node(1), await.Patience, func(s statusJSON) error {
		if s.Rejected != 0 || s.Alarm != "" {
			return fmt.Errorf("rejected %d, alarm %q", s.Rejected, s.Alarm)
		}
		return nil
	})
	reach(t, await.Patience, a, b, 4)
}

// refuses compares the records that weft lists as not accepted with those that have to be.
func refuses(l leasesJSON) error {
	got := map[string]string{}
	for _, r := range l.Rejected {
		got[r.Key] = r.Reason
	}
	for _, h := range hostile() {
		if got[h.key] != h.reason {
			return fmt.Errorf("%s: reason %q, want %q; all: %v", h.key, got[h.key], h.reason, got)
		}
	}
	return nil
}

// A record whose value becomes garbage takes nobody away either: its owner writes it anew, and
// meanwhile, and if there is no owner to do so, it counts as it was.
func TestGarbledRecordsOfLiveNodes(t *testing.T) {
	counting(t)
	l := up(t, lab.Spec{})
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	reach(t, await.Patience, a, b, 4)
	const third = prefix + "/subnets/10.42.240.0-24"
	put(t, l.Store, third, `{"PublicIP":"198.18.7.40","PublicIPv6":null}`, time.Hour)
	for _, n := range l.Nodes() {
		knows(t, n, await.Patience, "10.42.240.0/24", true)
	}
	before := list(t, l.Store, prefix+"/subnets/")
	stream := paced(t, a, b, probe.PacedPlan{Count: 2000})
	for _, kv := range before {
		put(t, l.Store, kv.key, "{garbage", 0)
	}
	await.OK(t, "own records written anew", func() error {
		for _, kv := range list(t, l.Store, prefix+"/subnets/") {
			if kv.key != third && !strings.Contains(kv.value, `"PublicIP":"198.18.0.`) {
				return fmt.Errorf("%s: %s", kv.key, kv.value)
			}
		}
		return nil
	})
	for _, n := range l.Nodes() {
		knows(t, n, await.Patience, "10.42.240.0/24", true)
		status(t, n, await.Patience, func(s statusJSON) error {
			if !s.Ready || s.Rejected != 1 || !strings.Contains(s.Alarm, "does not parse") {
				return fmt.Errorf("ready %v %q, %d rejected, alarm %q", s.Ready, s.NotReady, s.Rejected, s.Alarm)
			}
			return nil
		})
	}
	if r := stream.Wait(); r.Lost > 0 {
		t.Errorf("%s", r)
	}
}

// Records that vanish together with the configuration are not believed to be gone. When both are
// back the alarm ends, and from then on a removal is a removal.
func TestLossOfTheConfigurationIsNotBelieved(t *testing.T) {
	counting(t)
	l := up(t, lab.Spec{})
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	reach(t, await.Patience, a, b, 4)
	const third = prefix + "/subnets/10.42.240.0-24"
	put(t, l.Store, third, `{"PublicIP":"198.18.7.40","PublicIPv6":null}`, time.Hour)
	for _, n := range l.Nodes() {
		knows(t, n, await.Patience, "10.42.240.0/24", true)
	}
	stream := paced(t, a, b, probe.PacedPlan{Count: 4000})
	del(t, l.Store, configKey)
	for _, kv := range list(t, l.Store, prefix+"/subnets/") {
		del(t, l.Store, kv.key)
	}
	for _, n := range l.Nodes() {
		status(t, n, await.Patience, func(s statusJSON) error {
			if !strings.Contains(s.Alarm, "no network configuration") {
				return fmt.Errorf("alarm %q", s.Alarm)
			}
			return nil
		})
		knows(t, n, await.Patience, "10.42.240.0/24", true)
	}
	text, _, err := weft(t, l.Node(1), "status")
	if err != nil || !strings.Contains(text, "no network configuration") {
		t.Errorf("weft status does not say it: %v\n%s", err, text)
	}
	if m, err := l.Node(1).Metrics(t.Context()); err != nil || !strings.Contains(m, "\nweft_removals_disbelieved 1\n") {
		t.Errorf("the metrics do not say it: %v", err)
	}
	if r := stream.Wait(); r.Lost > 0 {
		t.Errorf("%s", r)
	}
	put(t, l.Store, configKey, ipv4Only, 0)
	put(t, l.Store, third, `{"PublicIP":"198.18.7.40","PublicIPv6":null}`, time.Hour)
	for _, n := range l.Nodes() {
		status(t, n, await.Patience, func(s statusJSON) error {
			if !s.Ready || s.Alarm != "" || s.Lease == nil || !s.Lease.Held {
				return fmt.Errorf("ready %v %q, alarm %q", s.Ready, s.NotReady, s.Alarm)
			}
			return nil
		})
	}
	del(t, l.Store, third)
	for _, n := range l.Nodes() {
		knows(t, n, await.Patience, "10.42.240.0/24", false)
	}
	reach(t, await.Patience, a, b, 4)
}
