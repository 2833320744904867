package doctor

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"weft/cmd/internal/control"
)

// The store's names in sentences.
const (
	etcdStore = "the store"
	apiServer = "the API server"
)

// settingFaults are what is wrong with the store's settings: with its certificates, and with all else.
func (s Store) settingFaults() (certificates, others []string) {
	if s.Check == nil {
		return nil, nil
	}
	for line := range strings.Lines(s.Check.Error()) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "etcd certificate ") || strings.HasPrefix(line, "etcd CA file ") ||
			strings.HasPrefix(line, "etcd key ") {
			certificates = append(certificates, line)
		} else {
			others = append(others, line)
		}
	}
	return certificates, others
}

func checkStoreSettings(f *Facts) findings {
	var out findings
	_, faults := f.Store.settingFaults()
	for _, line := range faults {
		out = out.says(Fault, "%s", line)
	}
	for _, w := range f.Store.Warnings {
		out = out.says(Warning, "%s", w)
	}
	if f.Store.What == "" {
		return out.or(Unknown, "%s", f.Store.Why)
	}
	return out.orOK("good")
}

func checkFiles(f *Facts) findings {
	var out findings
	for _, c := range f.Files {
		show := "openssl x509 -in " + c.Path + " -noout -dates -subject"
		switch left := c.Ends.Sub(f.Now); {
		case c.Err != nil:
			out = out.says(Fault, "%v", c.Err).do("ls -l %s; openssl x509 -in %s -noout -text", c.Path, c.Path)
		case left <= 0:
			out = out.says(Fault, "the certificate has expired on %s, %s ago", date(c.Ends), span(-left)).
				do("renew it in place, weftd reads it anew: %s; timedatectl", show)
		case f.Now.Before(c.Begins):
			out = out.says(Fault, "the certificate is valid only from %s on", date(c.Begins)).
				do("timedatectl; %s", show)
		case left < soon(c.Begins, c.Ends):
			out = out.says(Warning, "the certificate ends on %s, in %s", date(c.Ends), span(left)).
				do("renew it in place: %s", show)
		default:
			continue
		}
		out.about("--" + c.Flag + " " + c.Path)
	}
	unread := slices.ContainsFunc(f.Files, func(c CertFile) bool { return c.Err != nil }) // which the faults repeat
	if faults, _ := f.Store.settingFaults(); !unread {
		for _, line := range faults {
			out = out.says(Fault, "%s", line).do("openssl x509 -noout -subject -issuer -dates -in FILE shows each")
		}
	}
	return out.orOK("%d files, and all are good", len(f.Files))
}

// soon is how long before its end a certificate is warned of: a fifth of its life, and two weeks at most, so
// that one that lives for a day is not always about to end.
func soon(begins, ends time.Time) time.Duration { return min(ends.Sub(begins)/5, 14*24*time.Hour) }

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

func checkEndpoints(f *Facts) findings {
	if !f.Store.Asked {
		return says(Unknown, "%s", f.Store.Why)
	}
	var out findings
	answers := f.Store.answering()
	for _, e := range f.Store.Endpoints {
		v := Fault
		switch {
		case e.Err == nil, answers > 0 && f.Store.Guessed:
			continue // flannel's default has two ports, for an etcd of either age
		case answers > 0: // the others do for it
			v = Warning
		}
		err, request := e.Err, (*url.Error)(nil)
		if errors.As(err, &request) {
			err = request.Err
		}
		text := f.Settings.StoreClient(slog.New(slog.DiscardHandler)).Explain(f.Store.What, e.URL, err)
		found, advice, _ := strings.Cut(text, ": ")
		if advice += "; "; strings.HasSuffix(found, " does not answer") { // for a reason without an advice
			found, advice = text, ""
		}
		s := f.Settings.Store
		out = out.says(v, "%s", found).about(e.URL).
			do("%s%s/version asks it, too", advice, curl(e.URL, s.CAFile, s.CertFile, s.KeyFile))
	}
	return out.orOK("%d of %d endpoints answer", answers, len(f.Store.Endpoints))
}

// curl asks an address as weftd does.
func curl(url, ca, cert, key string) string {
	command := "curl -sSim 10"
	for _, x := range [...]struct{ flag, file string }{{" --cacert ", ca}, {" --cert ", cert},
		{" --key ", key}} {
		if x.file != "" {
			command += x.flag + x.file
		}
	}
	return command + " " + url
}

// fullStore ends an etcd whose database is full.
const fullStore = `etcdctl compact $(etcdctl endpoint status -w json | grep -o '"revision":[0-9]*' | ` +
	"head -n1 | cut -d: -f2); etcdctl defrag --cluster; etcdctl alarm disarm"

// storeRemedies are for what etcd says, by a part of it. The last is for all else.
var storeRemedies = []struct{ said, remedy string }{
	{"authentication failed", "correct --etcd-username and --etcd-password-file; etcdctl endpoint status asks " +
		"for the password"},
	{"user name", "log in, with --etcd-username and --etcd-password-file"},
	{"permission denied", "etcdctl role grant-permission ROLE readwrite --prefix=true PREFIX; etcdctl user " +
		"get USER shows the roles"},
	{"authentication is not enabled", "leave out --etcd-username, or etcdctl auth enable"},
	{"space exceeded", fullStore},
	{"NOSPACE", fullStore},
	{"", "etcdctl endpoint status --cluster -w table shows leader, time and alarms; ping -M do -s 1400 to it, " +
		"whether large packets pass"},
}

func remedyOfStore(said string) string {
	i := slices.IndexFunc(storeRemedies, func(r struct{ said, remedy string }) bool {
		return strings.Contains(said, r.said)
	})
	return storeRemedies[i].remedy
}

func checkStoreRead(f *Facts) findings {
	s := f.Store
	switch {
	case !s.Asked:
		return says(Unknown, "%s", s.Why)
	case s.answering() == 0 && len(s.Endpoints) > 0 && s.Err != nil:
		return says(Unknown, "no endpoint answers")
	case s.Err != nil:
		text := s.Err.Error() // without the wrapping of gRPC
		for _, mark := range []string{"desc = ", "etcdserver: "} {
			text = text[max(0, strings.LastIndex(text, mark)):]
			text = strings.TrimPrefix(text, mark)
		}
		return says(Fault, "%s cannot be read: %s", s.What, text).do("%s", remedyOfStore(text))
	}
	var out findings
	for _, b := range s.Snapshot.Bad {
		out = out.says(Warning, "the record is not believed: %s, %s", b.Reason, b.Detail).about(b.Key).
			do("weft lease list; weft lease release SUBNET deletes a record")
	}
	for _, e := range s.Endpoints {
		if strings.Contains(e.Alarm, "NOSPACE") { // of the whole cluster
			return out.says(Fault, "the store's database is full: it takes no writes, so that nodes lose their "+
				"subnets in time").about(e.URL).do(fullStore)
		} else if e.Alarm != "" {
			out = out.says(Warning, "it says that it is not well: %s", e.Alarm).about(e.URL).
				do("etcdctl alarm list; etcdctl endpoint status --cluster -w table")
		}
	}
	if s.What != etcdStore {
		return out.orOK("%s answers", s.What)
	}
	return out.orOK("records under %s/subnets: %d, at revision %d", f.Settings.Store.Prefix,
		len(s.Snapshot.Records), s.Snapshot.Revision)
}

// A store that weftd lost lostOften times within lostWithin is lost again and again.
const (
	lostWithin = 10 * time.Minute
	lostOften  = 3
)

// checkStoreWatch tells what weftd's log says. The doctor asks the store once, and weftd watches it, so that
// the store may answer the doctor alone.
func checkStoreWatch(f *Facts) findings {
	st, lost := f.Daemon.Status.Store, f.Daemon.StoreLost
	switch {
	case !f.Store.Asked || f.Store.Err != nil: // which is what weftd says, too
		return says(Unknown, "the store was not read")
	case st.Error != "":
		out := says(Warning, "the store answers here, and does not answer weftd: %s", st.Error).
			do("weft status; weft events --kind store_lost")
		if p := f.Settings.Proxy; p != "" {
			out.last().Found += "; weftd asks it through the proxy " + p + ", as HTTPS_PROXY in its environment says"
			out.do("name the store's hosts in NO_PROXY there, and restart weftd")
		}
		return out
	case st.Took > control.SlowStore:
		return says(Warning, "the store is slow: it answers weftd after %s", st.Took.Round(100*time.Millisecond)).
			do("etcdctl endpoint status; not excluded are etcd's disk, its host and the way there")
	case len(lost) == 0:
		return says(OK, "the store answers weftd")
	}
	last, v := lost[len(lost)-1], Note
	if len(lost) >= lostOften {
		v = Warning
	}
	return says(v, "the store answers weftd now; losses of it in the last %.0f min: %d, the last at %s: %s",
		lostWithin.Minutes(), len(lost), last.Time.UTC().Format("15:04:05 UTC"), last.Details["cause"]).
		do("weft events --kind store_lost --kind store_back")
}

// These are how far the store's clock may be from ours: above the second it is a warning. An HTTP date has
// seconds.
const clockNote, clockWarning = 5 * time.Second, time.Minute

func checkClock(f *Facts) findings {
	var out findings
	told := 0
	for _, e := range f.Store.Endpoints {
		if !e.Clock {
			continue
		}
		told++
		v, how, off := Note, "behind", e.Ahead.Abs()-e.Within
		if e.Ahead < 0 {
			how = "ahead of"
		}
		if off >= clockWarning {
			v = Warning
		}
		if off >= clockNote {
			// less than a second is the way's, and less than a minute no matter where it is hours
			off = e.Ahead.Abs().Round(time.Second)
			if off > time.Hour {
				off = off.Round(time.Minute)
			}
			out = out.says(v, "this host's clock is %s %s that of %s", span(off), how, e.URL).about(e.URL).
				do("timedatectl; chronyc tracking, on both; certificates and logs are judged by it, leases are not")
		}
	}
	if told == 0 {
		return says(Unknown, "no endpoint told its time")
	}
	return out.orOK("it is within %s of the store's", clockNote)
}

func checkServerCertificate(f *Facts) findings {
	var out findings
	for _, e := range f.Store.Endpoints {
		if c := e.Shown; c != nil && c.NotAfter.Sub(f.Now) < soon(c.NotBefore, c.NotAfter) {
			out = out.says(Warning, "its certificate ends on %s, in %s: after that this node does not talk to it",
				date(c.NotAfter), span(c.NotAfter.Sub(f.Now))).about(e.URL).do("renew it on that host")
		}
	}
	return out.orOK("no endpoint that answers has one that ends soon")
}

// span is a duration with one unit that fits.
func span(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d hours", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}
