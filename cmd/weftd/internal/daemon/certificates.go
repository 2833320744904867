package daemon

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"weft/lease/etcd"
)

// certificatesEvery is the time between looks at the files by which the source is reached.
const certificatesEvery = 30 * time.Second

// watchCertificates takes up files by which the source is reached when they have been replaced, and says
// which of them are about to stop working, before a connection is lost that cannot be made again.
func (d *Daemon) watchCertificates(ctx context.Context) error {
	for {
		d.lookAtCertificates(ctx)
		if !pause(ctx, certificatesEvery) {
			return nil
		}
	}
}

func (d *Daemon) lookAtCertificates(ctx context.Context) {
	d.reloads.one.Lock()
	defer d.reloads.one.Unlock()
	certificates, others := sourceFiles(d.settings(), d.log)
	if len(certificates)+len(others) == 0 {
		return
	}
	notes := append(certificateNotes(certificates, time.Now()), unreadable(others)...)
	if len(notes) == 0 { // else what is wrong with the files is said already, and what was read before is in use
		changed, err := d.reloadSource(ctx, d.settings())
		if changed {
			d.log.Info("the files by which the " + d.source.info().name +
				" is reached were replaced: the connection is made anew with them")
		}
		if err != nil {
			notes = append(notes, fmt.Sprintf("the files by which the %s is reached were replaced, and those of "+
				"before are still in use: %v", d.source.info().name, err))
		}
	}
	before := d.certificatesNow()
	d.reloads.certificates.Store(&notes)
	for _, n := range notes {
		if !slices.Contains(before, n) {
			d.log.Warn("certificates", "note", n)
		}
	}
	if len(before) > 0 && len(notes) == 0 {
		d.log.Info("certificates are good again")
	}
}

// certificatesNow returns what is to be said of certificates.
func (d *Daemon) certificatesNow() []string {
	if notes := d.reloads.certificates.Load(); notes != nil {
		return *notes
	}
	return nil
}

// unreadable says which of files cannot be read.
func unreadable(files []string) (notes []string) {
	for _, f := range files {
		if _, err := os.ReadFile(f); err != nil {
			notes = append(notes, err.Error()+": "+stays)
		}
	}
	return notes
}

// certificateNotes says which of the PEM files cannot be read, have expired, or are about to.
func certificateNotes(files []string, now time.Time) (notes []string) {
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			notes = append(notes, err.Error()+": "+stays)
			continue
		}
		from, to, ok := etcd.Validity(b)
		switch {
		case !ok:
			notes = append(notes, f+": no certificate is in it: "+stays)
		case now.After(to):
			notes = append(notes, fmt.Sprintf("%s has expired on %s: replace it; the connection in use lasts until "+
				"it is lost, and the next one is refused", f, to.UTC().Format(time.RFC3339)))
		case to.Sub(now) < soon(to.Sub(from)):
			notes = append(notes, fmt.Sprintf("%s expires on %s: replace it, and weftd takes the new one by itself", f,
				to.UTC().Format(time.RFC3339)))
		}
	}
	return notes
}

// stays says what becomes of connections whose files cannot be used any more.
const stays = "what was read before is still in use, until weftd is restarted"

// soon is how long before its end it is said of a certificate that lasts for whole: a tenth of that, and a
// week at most. Programs that renew certificates do so earlier.
func soon(whole time.Duration) time.Duration { return min(whole/10, 7*24*time.Hour) }
