package doctor

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"weft/cmd/internal/control"
)

func checkStoreSettings(f *Facts) findings {
	var out findings
	if f.Store.Check != nil {
		for line := range strings.Lines(f.Store.Check.Error()) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "etcd certificate ") &&
				!strings.HasPrefix(line, "etcd CA file") {
				out = out.says(Fault, "%s", line)
			}
		}
	}
	for _, w := range f.Store.Warnings {
		out = out.says(Warning, "%s", w)
	}
	if len(out) == 0 && f.Store.What == "" {
		return says(Unknown, "%s", f.Store.Why)
	}
	return out.orOK("good")
}

// soon is how long before its end a certificate is warned of: a fifth of its life, and two weeks at most, so
// that one that lives for a day is not always about to end.
func soon(c *x509.Certificate) time.Duration {
	return min(c.NotAfter.Sub(c.NotBefore)/5, 14*24*time.Hour)
}

func checkFiles(f *Facts) findings {
	if len(f.Files) == 0 {
		return says(OK, "the settings name none")
	}
	var out findings
	for _, file := range f.Files {
		if x := file.judge(f.Now); x != nil {
			out = append(out, x.about("--"+file.Flag+" "+file.Path)...)
		}
	}
	return out.orOK("all are good")
}

// judge returns the worst that is to be said of a file; nil for nothing.
func (c CertFile) judge(now time.Time) findings {
	switch {
	case errors.Is(c.Err, fs.ErrNotExist):
		return says(Fault, "there is no such file").
			because("the path is misspelt, or what makes the file did not run").do("ls -l %s", c.Path)
	case errors.Is(c.Err, fs.ErrPermission):
		return says(Fault, "it may not be read").because("its owner or mode keeps weftd out").
			do("ls -l %s; the unit gives CAP_DAC_READ_SEARCH, so that root reads files of etcd's user", c.Path)
	case c.Err != nil:
		return says(Fault, "%v", bare(c.Err)).do("openssl x509 -in %s -noout -text", c.Path)
	}
	inTime := func(x *x509.Certificate) bool { return !now.Before(x.NotBefore) && !now.After(x.NotAfter) }
	others := slices.ContainsFunc(c.Certs, inTime)
	for i, x := range c.Certs {
		if c.authorities() && others && !inTime(x) {
			continue // of many authorities some are always of another time
		}
		clients := len(x.ExtKeyUsage) == 0 || slices.Contains(x.ExtKeyUsage, x509.ExtKeyUsageClientAuth) ||
			slices.Contains(x.ExtKeyUsage, x509.ExtKeyUsageAny)
		show := "openssl x509 -in " + c.Path + " -noout -dates -subject"
		switch left := x.NotAfter.Sub(now); {
		case now.After(x.NotAfter):
			return says(Fault, "the certificate of %s has expired on %s, %s ago", subject(x), date(x.NotAfter),
				span(-left)).because("nobody renewed it, or this host's clock is ahead").
				do("renew it in place, weftd reads it anew: %s", show)
		case now.Before(x.NotBefore):
			return says(Fault, "the certificate of %s is valid only from %s on, in %s", subject(x), date(x.NotBefore),
				span(x.NotBefore.Sub(now))).because("this host's clock is behind").do("timedatectl; %s", show)
		case left < soon(x) && (!c.authorities() || len(c.Certs) == 1):
			return says(Warning, "the certificate of %s ends on %s, in %s", subject(x), date(x.NotAfter), span(left)).
				do("renew it in place: %s", show)
		case i == 0 && c.Flag == certFlag && !clients:
			return says(Warning, "the certificate of %s is not for clients (its extended key usage has no "+
				"clientAuth), and a store that asks for one will refuse it", subject(x)).
				do("openssl x509 -in %s -noout -ext extendedKeyUsage", c.Path)
		}
	}
	return nil
}

func subject(c *x509.Certificate) string {
	if s := c.Subject.String(); s != "" {
		return s
	}
	return "serial number " + c.SerialNumber.String()
}

// The flags that name certificates.
const (
	caFlag     = "etcd-cafile"
	certFlag   = "etcd-certfile"
	hookCAFlag = "route-hook-cafile"
)

// authorities reports whether the file is of those whose certificates are believed.
func (c CertFile) authorities() bool { return c.Flag == caFlag || c.Flag == hookCAFlag }

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

func checkEndpoints(f *Facts) findings {
	if !f.Store.Asked {
		return says(Unknown, "%s", f.Store.Why)
	}
	var out findings
	answers := f.Store.answering()
	for _, e := range f.Store.Endpoints {
		if e.Err == nil {
			continue
		}
		x := e.explain(f)
		switch {
		case answers > 0 && f.Store.Guessed: // flannel's default has two ports, for an etcd of either age
			continue
		case answers > 0: // the others do for it
			x.last().Verdict = Warning
		}
		out = append(out, x.about(e.URL)...)
	}
	return out.orOK("%d of %d endpoints answer", answers, len(f.Store.Endpoints))
}

func checkStoreRead(f *Facts) findings {
	switch s := f.Store; {
	case !s.Asked:
		return says(Unknown, "%s", s.Why)
	case s.Err == nil && s.What != etcdStore:
		return says(OK, "%s answers", s.What)
	case s.Err == nil:
		out := says(OK, "records under %s/subnets: %d, at revision %d", f.Settings.Store.Prefix,
			len(s.Snapshot.Records), s.Snapshot.Revision)
		for _, b := range s.Snapshot.Bad {
			out = out.says(Warning, "the record is not believed: %s, %s", b.Reason, b.Detail).about(b.Key).
				because("somebody wrote it who is no node").
				do("weft lease list; weft lease release SUBNET deletes a record")
		}
		for _, e := range s.Endpoints {
			if strings.Contains(e.Alarm, "NOSPACE") {
				return append(out[1:], full().about(e.URL)...) // of the whole cluster
			} else if e.Alarm != "" {
				out = out.says(Warning, "it says that it is not well: %s", e.Alarm).about(e.URL).
					because("its database is full (NOSPACE) or corrupt, or it had no leader a moment ago").
					do("etcdctl alarm list; etcdctl endpoint status --cluster -w table")
			}
		}
		return out
	case s.answering() == 0 && len(s.Endpoints) > 0:
		return says(Unknown, "no endpoint answers")
	}
	return refused(f.Store.Err, f.Settings.Store.Username)
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
		return says(Warning, "the store answers here, and does not answer weftd").because("%s", st.Error).
			do("weft status; weft events --kind store_lost")
	case st.Took > control.SlowStore:
		return says(Warning, "the store is slow: it answers weftd after %s", st.Took.Round(100*time.Millisecond)).
			because("not excluded are etcd's disk, its host and the way there").do("etcdctl endpoint status")
	case len(lost) == 0:
		return says(OK, "the store answers weftd")
	}
	last := lost[len(lost)-1]
	out := says(Note, "the store answers weftd now; losses of it in the last %.0f min: %d", lostWithin.Minutes(),
		len(lost))
	if len(lost) >= lostOften {
		out.last().Verdict = Warning
	}
	return out.because("at %s, %s", last.Time.UTC().Format("15:04:05 UTC"), last.Details["cause"]).
		do("weft events --kind store_lost --kind store_back")
}

// The store's names in sentences.
const (
	etcdStore = "the store"
	apiServer = "the API server"
)

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
		off := e.Ahead.Abs() - e.Within
		how := "behind"
		if e.Ahead < 0 {
			how = "ahead of"
		}
		v := Note
		if off >= clockWarning {
			v = Warning
		}
		if off >= clockNote {
			off = (off + e.Within).Round(time.Second) // less than that is the way's
			if off > time.Hour {
				off = off.Round(time.Minute)
			}
			out = out.says(v, "this host's clock is %s %s that of %s", span(off), how, e.URL).about(e.URL).
				because("one of the two is not synchronised").
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
	seen := 0
	for _, e := range f.Store.Endpoints {
		if e.Shown == nil || e.Err != nil {
			continue
		}
		seen++
		if left := e.Shown.NotAfter.Sub(f.Now); left < soon(e.Shown) {
			out = out.says(Warning, "its certificate ends on %s, in %s: after that this node does not talk to it",
				date(e.Shown.NotAfter), span(left)).about(e.URL).do("renew it on that host")
		}
	}
	if seen == 0 {
		return says(OK, "no endpoint that answers uses TLS")
	}
	return out.orOK("far enough")
}
