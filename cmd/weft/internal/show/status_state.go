package show

import (
	"fmt"
	"io"
	"strings"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
)

// printState prints what is so, without what was counted.
func printState(w io.Writer, s control.Status, now time.Time) error {
	t := cli.NewTable(w)
	row := func(name, format string, a ...any) { t.Row(name, fmt.Sprintf(format, a...)) }
	row("weftd", "%s, pid %d, up %s", s.Version, s.PID, cli.Span(time.Duration(s.Uptime)*time.Second))
	row("node", "%s", cli.NodeText(s.Name, s.NodeID))
	row("ready", "%s", cli.YesNo(s.Ready))
	for _, r := range s.NotReady {
		row("", "%s", r)
	}
	for _, n := range s.Notes {
		row("note", "%s", n)
	}
	if s.Alarm != "" {
		row("ALARM", "%s", s.Alarm)
	}
	if n := s.Namespace; n != nil {
		row("namespace", "%s", namespaceLine(*n))
		if n.Out != nil {
			row("elsewhere", "%s", wayOutLine(*n.Out))
		}
	}
	configRows(row, s)
	row("lease", "%s", leaseLine(s, now))
	row("backend", "%s", backendLine(s.Backend))
	for _, n := range s.Backend.Notes {
		row("", "%s", n)
	}
	if s.Backend.Error != "" {
		row("", "last reconcile: %s", s.Backend.Error)
	}
	controllerRows(row, s.Controller, now)
	row("underlay", "%s", underlayLine(s.Underlay))
	if f := s.Underlay.Forwarding; f != "" {
		row("", "rx-udp-gro-forwarding %s", f)
	}
	for _, line := range deviceLines(s) {
		row("", "%s", line)
	}
	rulesRows(row, s.Rules)
	custodyRows(row, s.Custody)
	row(storeRow(s.Store), "%s", storeLine(s.Store, now))
	row("cache", "%s", cacheLine(s.Cache, now))
	row("peers", "%s", peersLine(s))
	podRows(row, s.Pods)
	return t.Flush()
}

// namespaceLine says where the TUN is, and how programs get there.
func namespaceLine(n control.Namespace) string {
	s := "of process " + fmt.Sprint(n.PID)
	if n.PID == 0 {
		s = n.Path
	}
	if n.Own {
		s = "made by weftd, kept by process " + fmt.Sprint(n.PID)
	}
	if n.Rootless {
		s += ", without root"
	}
	if n.Enter != "" {
		s += ": " + n.Enter + " COMMAND"
	}
	return s
}

// wayOutLine says where packets to neither pods nor peers go.
func wayOutLine(o control.WayOut) string {
	const none = "the namespace has no default route, which slirp4netns or pasta give it"
	var s string
	switch {
	case o.IPv4 == "" && o.IPv6 == "":
		return "nowhere: " + none
	case o.IPv6 == "":
		s = "IPv4 by " + o.IPv4 + ", IPv6 nowhere"
	case o.IPv4 == "":
		s = "IPv6 by " + o.IPv6 + ", IPv4 nowhere"
	case o.IPv4 == o.IPv6:
		s = "by " + o.IPv4
	default:
		s = "IPv4 by " + o.IPv4 + ", IPv6 by " + o.IPv6
	}
	if !o.Masquerade {
		s += "; what pods send there gets no answer through slirp4netns or pasta without --ip-masq"
	}
	return s
}

// phrase is a text of clauses with commas between them.
type phrase string

// and adds a clause where that is so.
func (p *phrase) and(so bool, format string, a ...any) {
	if so {
		*p += phrase(", " + fmt.Sprintf(format, a...))
	}
}

func leaseLine(status control.Status, now time.Time) string {
	l := status.Lease
	if l == nil {
		return "none"
	}
	p := phrase(cli.Join(l.Subnet, l.IPv6Subnet))
	ended, known := l.Expires.Before(now), !l.Reservation && !l.Expires.IsZero()
	p.and(l.Reservation, "reserved: it does not end")
	p.and(known && ended, "ended %s", cli.Ago(l.Expires, now))
	p.and(known && !ended, "ends in %s", cli.Span(l.Expires.Sub(now)))
	p.and(!l.Held, "not confirmed by the %s", storeName(status.Store))
	if l.Detail != "" {
		p += phrase(" (" + l.Detail + ")")
	}
	return string(p)
}

func backendLine(b control.Backend) string {
	if b.Type == "" {
		return "not started"
	}
	p := phrase(b.Type)
	p.and(b.Path != "", "path %s", b.Path)
	p.and(b.Encrypt != "", "encrypted %s", strings.ReplaceAll(b.Encrypt, "-", " "))
	p.and(b.Device != "", "device %s", b.Device)
	p.and(b.MTU > 0, "MTU %d", b.MTU)
	p.and(b.Port > 0, "port %d", b.Port)
	p.and(!b.InPlace, "NOT IN PLACE")
	return string(p)
}

func underlayLine(u control.Underlay) string {
	if u.Link == "" {
		return "not chosen"
	}
	p := phrase(u.Link)
	p.and(true, "%s, MTU %d", cli.Join(u.Address, u.IPv6Address), u.MTU)
	p.and(u.PublicIP != u.Address || u.PublicIPv6 != u.IPv6Address, "peers are told %s",
		cli.Join(u.PublicIP, u.PublicIPv6))
	p.and(u.Lost != "", "LOST: %s", u.Lost)
	return string(p)
}

// storeRow returns the heading of the store's line, storeName the store's name in other lines.
func storeRow(s control.Store) string {
	if s.Kind == control.KindKubernetes {
		return "kubernetes"
	}
	return "store"
}

func storeName(s control.Store) string {
	if s.Kind == control.KindKubernetes {
		return "API server"
	}
	return "store"
}

func storeLine(s control.Store, now time.Time) string {
	line := fmt.Sprintf("%s %s, prefix %s", s.Kind, strings.Join(s.Endpoints, " "), s.Prefix)
	if s.Kind == control.KindKubernetes {
		line = fmt.Sprintf("API server %s, annotations %s", strings.Join(s.Endpoints, " "), s.Prefix)
	}
	switch {
	case s.Connected && s.Took > control.SlowStore:
		line += ", SLOW: it answers after " + s.Took.Round(100*time.Millisecond).String()
	case s.Connected:
	case s.Refuses:
		line += ", REFUSES US"
	case !s.FailingSince.IsZero() && s.LastSeen.After(s.FailingSince):
		line += ", ANSWERS BUT DOES NOT SERVE US"
	default:
		line += ", NOT ANSWERING"
	}
	if s.LastSeen.IsZero() {
		line += ", not heard since weftd started"
	} else {
		line += ", last heard " + cli.Ago(s.LastSeen, now)
	}
	if s.Error != "" {
		line += ": " + s.Error
	}
	return line
}

func cacheLine(c control.Cache, now time.Time) string {
	p := phrase(c.File)
	p.and(c.SavedAt.IsZero(), "not there yet")
	p.and(!c.SavedAt.IsZero(), "written %s", cli.Ago(c.SavedAt, now))
	p.and(c.Used, "this run began with it")
	return string(p)
}

func peersLine(s control.Status) string {
	p := phrase(fmt.Sprint(s.Peers))
	p.and(s.Rejected > 0, "not believed: %s (see weft lease list)", cli.Count(s.Rejected, "record"))
	return string(p)
}
