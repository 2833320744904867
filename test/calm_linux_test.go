package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/promtool"
	"weft/test/traffic"
)

// calmFor is set by make test-hour to how long each lab is watched, as in 1h. Without it there is one round
// in one lab.
const calmFor = "WEFT_CALM"

// calmRound is how long a round takes at least when there are many: as long as the time between a Prometheus'
// scrapes.
const calmRound = time.Minute

// A lab in which nothing is wrong says that nothing is: while nodes restart, come and leave, and pods send,
// no daemon logs a warning or an error, no history blames a peer, no peer counts as silent or lossy, weft
// doctor finds nothing, and no alert is raised.
func TestAHealthyLabIsCalm(t *testing.T) {
	t.Parallel()
	configs := []struct{ name, config string }{
		{"udp", dualStack},
		{"vxlan", `{"Network":"10.42.0.0/16","Backend":{"Type":"vxlan"}}`},
		{"host-gw", `{"Network":"10.42.0.0/16","Backend":{"Type":"host-gw"}}`},
		{"vxlan in user space", `{"Network":"10.42.0.0/16","Backend":{"Type":"vxlan","Userspace":"always"}}`},
	}
	long, err := time.ParseDuration(os.Getenv(calmFor))
	if err != nil && os.Getenv(calmFor) != "" {
		t.Fatal(err)
	}
	if long == 0 {
		configs = configs[:1]
	}
	for _, c := range configs {
		t.Run(c.name, func(t *testing.T) {
			parallel(t)
			w := &watched{l: up(t, lab.Spec{Nodes: 3, NetworkConfig: json.RawMessage(c.config)}),
				read: map[string]int64{}}
			for until := time.Now().Add(long); ; {
				began := time.Now()
				w.round(t)
				w.scrape(t)
				w.look(t)
				if t.Failed() || !time.Now().Add(calmRound).Before(until) {
					break
				}
				w.idle(t, began.Add(calmRound))
			}
			w.alerts(t)
			t.Logf("%d rounds", w.rounds)
		})
	}
}

// watched is a healthy lab.
type watched struct {
	l       *lab.Lab
	guest   *lab.Node // comes and goes
	rounds  int
	read    map[string]int64    // how much of each log was looked at
	scrapes []map[string]string // what each round's scrape said
}

// round has a node come, another one restart, pods send meanwhile, and the node that came leave as the
// documents say.
func (w *watched) round(t *testing.T) {
	t.Helper()
	w.rounds++
	first := w.l.Node(1)
	var flows []*traffic.Flow
	for i := range 3 {
		from, to := w.l.Node(i + 1).Pods[0], w.l.Node((i+1)%3 + 1).Pods[0]
		reach(t, await.Patience, from, to, 4)
		flows = append(flows, traffic.Start(t, from.Endpoint(4), to.Endpoint(4), 100))
	}
	var err error
	if w.guest == nil {
		w.guest, err = w.l.AddNode(t.Context())
	} else {
		err = w.guest.Start(t.Context())
	}
	if err != nil {
		t.Fatal(lab.Explain(err))
	}
	reach(t, await.Patience, first.Pods[0], w.guest.Pods[0], 4)
	streamOf(t, w.guest.Pods[0].Endpoint(4), first.Pods[0].Endpoint(4), 16<<20)
	again := w.l.Node((w.rounds-1)%3 + 1)
	if w.rounds%2 == 0 {
		err = again.Kill()
	} else {
		err = again.Stop(t.Context())
	}
	if err == nil {
		err = again.Start(t.Context())
	}
	if err != nil {
		t.Fatal(lab.Explain(err))
	}
	reach(t, await.Patience, w.guest.Pods[0], again.Pods[0], 4)
	if err := w.guest.Stop(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
	if out, errs, err := weft(t, first, "lease", "release", w.guest.Net.V4.Masked().String()); err != nil {
		t.Fatal(err, out, errs)
	}
	for i := range 3 {
		knows(t, w.l.Node(i+1), await.Patience, w.guest.Net.V4.Masked().String(), false)
	}
	for _, f := range flows {
		f.Stop()
	}
}

// idle watches until then.
func (w *watched) idle(t *testing.T, until time.Time) {
	t.Helper()
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for time.Now().Before(until) {
		<-tick.C
		w.peers(t)
	}
}

// peers looks at what each node says of the others.
func (w *watched) peers(t *testing.T) {
	t.Helper()
	for i := range 3 {
		n := w.l.Node(i + 1)
		answer, err := ask[probesSeen](t.Context(), n, "peers")
		if err != nil {
			t.Errorf("%s: %v", n.Name, err)
		}
		for _, p := range answer.Peers {
			for _, x := range p.Probes {
				if x.Answers == "no" || x.Lossy || x.LargeLost || x.Likely != "" {
					t.Errorf("%s: %s says of %s: %+v", time.Now().UTC().Format(time.TimeOnly), n.Name, p.Name, x)
				}
			}
		}
		s, err := ask[statusJSON](t.Context(), n, "status")
		if err != nil || !s.Ready || s.Alarm != "" || len(s.Notes)+len(s.Backend.Notes)+len(s.NotReady) > 0 ||
			s.Backend.Error != "" {
			t.Errorf("%s: %s: %v, %+v", time.Now().UTC().Format(time.TimeOnly), n.Name, err, s)
		}
	}
}

// look looks at all that each node says.
func (w *watched) look(t *testing.T) {
	t.Helper()
	w.peers(t)
	for i, n := range w.l.Nodes() {
		log, err := os.ReadFile(n.Daemon.LogFile)
		if err != nil {
			t.Fatal(err)
		}
		log = log[:bytes.LastIndexByte(log, '\n')+1] // what is being written is looked at the next time
		for line := range strings.Lines(string(log[w.read[n.Name]:])) {
			if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") ||
				!strings.Contains(line, "level=") {
				t.Errorf("%s said: %s", n.Name, line)
			}
		}
		w.read[n.Name] = int64(len(log))
		if i == 3 { // it has left
			continue
		}
		var report struct {
			Findings []struct{ ID, Verdict, Subject, Found string }
		}
		out, errs, err := weft(t, n, "doctor", "--json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &report)
		}
		if err != nil {
			t.Errorf("%s: doctor: %v: %s%s", n.Name, err, out, errs)
		}
		for _, f := range report.Findings {
			if f.Verdict != "ok" && f.Verdict != "unknown" && f.ID != "bridge-netfilter" { // that is this machine's
				t.Errorf("%s: doctor: %+v", n.Name, f)
			}
		}
		var history struct {
			Events []struct {
				Time                 time.Time
				Kind, Level, Message string
			}
		}
		if out, errs, err = weft(t, n, "events", "--json"); err == nil {
			err = json.Unmarshal([]byte(out), &history)
		}
		if err != nil || len(history.Events) == 0 {
			t.Errorf("%s: events: %v: %s%s", n.Name, err, out, errs)
		}
		for _, e := range history.Events {
			switch e.Kind {
			case "peer_unanswering", "peer_lossy", "peer_held_back", "peer_unused", "not_ready", "store_lost", "fault",
				"record_rejected", "underlay_lost", "lease_contested":
				t.Errorf("%s: %+v", n.Name, e)
			}
			if e.Level != "info" {
				t.Errorf("%s: %+v", n.Name, e)
			}
		}
	}
}

// scrape keeps what each node's /metrics say now.
func (w *watched) scrape(t *testing.T) {
	t.Helper()
	now := map[string]string{}
	for i := range 3 {
		n := w.l.Node(i + 1)
		text, err := n.Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		promtool.Scraped(now, n.Name, text, 1)
	}
	w.scrapes = append(w.scrapes, now)
}

// alerts has Prometheus' own tool evaluate the shipped rules over all scrapes, every ten minutes.
func (w *watched) alerts(t *testing.T) {
	t.Helper()
	series := map[string]string{}
	for minute, now := range w.scrapes {
		for name := range now {
			if series[name] == "" && minute > 0 {
				series[name] = fmt.Sprintf("_x%d", minute-1)
			}
		}
		for name := range maps.Keys(series) {
			value, ok := now[name]
			if !ok {
				value = " _"
			}
			series[name] += strings.TrimSuffix(value, "x0")
		}
	}
	var cases []promtool.Case
	for at := len(w.scrapes) - 1; at >= 0; at -= 10 {
		cases = append(cases, promtool.Case{Name: fmt.Sprint("after ", at), Series: series,
			At: time.Duration(at) * time.Minute})
	}
	promtool.Check(t, "../cmd/weftd/deploy/chart/weft/monitoring/rules.yaml", cases)
}
