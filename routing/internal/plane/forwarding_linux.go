package plane

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"weft/lease/atomicfile"
	"weft/routing/event"
	"weft/routing/internal/kernel"
)

// The words of the key RxUDPGROForwarding: what weft does with the underlay device's feature of that name,
// which is the host's: all UDP that the host forwards is coalesced too.
const (
	ForwardingAuto = "auto" // weft turns it on where the kernel joins nothing without
	ForwardingOn   = "on"
	ForwardingOff  = "off" // weft leaves the feature alone, and gives back what it turned on
)

// ForwardingWords are the values of the key RxUDPGROForwarding, the default first.
func ForwardingWords() []string { return []string{ForwardingAuto, ForwardingOn, ForwardingOff} }

// ForwardingFile, in the state directory, says of which link weft turned rx-udp-gro-forwarding on.
const ForwardingFile = "rx-udp-gro-forwarding.json"

// retryForwarding is how long after a fault the feature is tried again.
const retryForwarding = time.Minute

// forwardedLink is what ForwardingFile holds. A link's name and number mean the same link in the same place
// only.
type forwardedLink struct {
	Link  string `json:"link"`
	Index int    `json:"index"`
	Place string `json:"place"`
	// Declined says that somebody turned the feature off since.
	Declined bool `json:"declined,omitempty"`
}

// forwarder keeps the feature of the underlay's link as the word says, and the note of it. Its methods are
// called by one goroutine at a time.
type forwarder struct {
	k     *kernel.Kernel
	log   *slog.Logger
	word  string
	file  string         // "" keeps nothing
	place string         // of k; "" if it is not known
	note  *forwardedLink // of a link that is there, as far as is known; nil for none
	index int            // of the link that was and fault are about
	was   bool           // the feature was on the last time
	fault error          // why the feature could not be had the last time; nil if it could
	again time.Time      // no try before, after a fault
}

// TendForwarding looks after the feature of the underlay's device that has the kernel join what arrives, and
// says what an operator should know of it; "" if there is nothing.
func (p *Plane) TendForwarding(link string) string {
	p.forward.tend(link)
	return p.forward.says()
}

// newForwarder reads what an earlier process noted in the state directory.
func newForwarder(k *kernel.Kernel, word, stateDir string, log *slog.Logger) *forwarder {
	f := &forwarder{k: k, log: log, word: word}
	if stateDir != "" {
		f.file = filepath.Join(stateDir, ForwardingFile)
	}
	var err error
	if f.place, err = k.Place(); err == nil {
		f.note, err = loadForwarded(f.file, f.place)
	}
	if err != nil {
		log.Warn("whether weft turned rx-udp-gro-forwarding on is not known", "reason", err)
	}
	if f.note != nil && f.note.Declined && word == ForwardingOn {
		f.note = nil // who asks for it now knows better
	}
	return f
}

// loadForwarded reads a note, which is nil if there is none, or none for that place.
func loadForwarded(file, place string) (*forwardedLink, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var n forwardedLink
	if err := json.Unmarshal(b, &n); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it", file, err)
	}
	if n.Place != place {
		return nil, nil
	}
	return &n, nil
}

// save makes n the note, and brings the file to it. A failed write is not the note's.
func (f *forwarder) save(n *forwardedLink) error {
	if f.file == "" {
		f.note = n
		return nil
	}
	if n == nil {
		f.note = nil
		if err := os.Remove(f.file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err = atomicfile.Write(f.file, b); err == nil {
		f.note = n
	}
	return kernel.Wrap("note that rx-udp-gro-forwarding was off", err)
}

// tend looks after the feature of the underlay's link. A fault costs throughput, and so is a remark.
func (f *forwarder) tend(link string) {
	if link == "" || f.word == ForwardingOff && f.note == nil {
		return
	}
	dev, err := f.k.Device(link)
	if err != nil {
		return // until there is a link again
	}
	if f.note != nil && (f.note.Link != link || f.note.Index != dev.Index) {
		f.leave(*f.note)
	}
	if f.index != dev.Index {
		f.index, f.fault, f.was = dev.Index, nil, false
	}
	if f.fault != nil && time.Now().Before(f.again) {
		return
	}
	err = f.follow(dev)
	if err != nil && f.fault == nil {
		f.log.Warn("rx-udp-gro-forwarding is left as it is", "event", event.ReceiveJoining, "link", link,
			"error", err)
	}
	if f.fault = err; err != nil {
		f.again = time.Now().Add(retryForwarding)
	}
}

// follow does what is to be done about the feature of a link, and heeds what somebody else did.
func (f *forwarder) follow(d kernel.Device) error {
	features, err := f.k.Features(d.Index)
	if err != nil {
		return err
	}
	was, on := f.was, features[0][kernel.Forwarding]
	f.was = on
	// A veth hands the frames of sockets to GRO only if it has the feature. Every other link with GRO joins
	// datagrams for our sockets without, or not at all.
	wanted := f.word == ForwardingOn || f.word == ForwardingAuto && d.Kind == "veth" && features[0][kernel.GRO]
	ours, n := f.note != nil, forwardedLink{Link: d.Name, Index: d.Index, Place: f.place}
	switch {
	case ours && f.note.Declined && on: // the operator turned it on again: it is his
		return f.save(nil)
	case ours && f.note.Declined:
	case was && !on && f.word != ForwardingOff, ours && !on:
		f.log.Info("somebody turned rx-udp-gro-forwarding off: it stays off", "event", event.ReceiveJoining,
			"link", d.Name)
		n.Declined = true
		return f.save(&n)
	case ours && !wanted:
		f.was = false
		if err := f.k.SetFeature(d.Index, kernel.Forwarding, false); err != nil {
			return err
		}
		f.log.Info("turned rx-udp-gro-forwarding off again", "event", event.ReceiveJoining, "link", d.Name)
		return f.save(nil)
	case wanted && !on:
		if err := f.save(&n); err != nil { // before the feature is changed
			return err
		}
		if err := f.k.SetFeature(d.Index, kernel.Forwarding, true); err != nil {
			return errors.Join(err, f.save(nil))
		}
		f.log.Info("turned rx-udp-gro-forwarding on, so that arriving datagrams are joined; weft cleanup gives "+
			"it back", "event", event.ReceiveJoining, "link", d.Name)
	}
	return nil
}

// leave gives back the feature of a link that is the underlay no longer.
func (f *forwarder) leave(n forwardedLink) {
	what, err := giveBackForwarding(f.k, n, false)
	if err != nil {
		f.log.Warn("rx-udp-gro-forwarding is not given back", "event", event.ReceiveJoining, "error", err)
	} else if what != "" {
		f.log.Info("turned rx-udp-gro-forwarding off again", "event", event.ReceiveJoining, "link", n.Link)
	}
	if err := f.save(nil); err != nil {
		f.log.Warn("rx-udp-gro-forwarding", "event", event.ReceiveJoining, "error", err)
	}
}

// says is what an operator should know of the feature; "" if there is nothing.
func (f *forwarder) says() string {
	switch {
	case f.fault != nil && f.note != nil:
		return fmt.Sprintf("weft turned it on, and cannot tend it: %v", f.fault)
	case f.fault != nil:
		return fmt.Sprintf("not to be had: %v", f.fault)
	case f.note != nil && f.note.Declined:
		return "off: somebody turned it off, and so it stays"
	case f.note != nil:
		return "on: weft turned it on, and weft cleanup gives it back"
	}
	return ""
}

// giveBackForwarding turns the feature of a link off that weft had turned on, and says what it turned off: ""
// for nothing.
func giveBackForwarding(k *kernel.Kernel, n forwardedLink, dry bool) (string, error) {
	dev, err := k.Device(n.Link)
	if errors.Is(err, kernel.ErrNoLink) || err == nil && dev.Index != n.Index || n.Declined {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	on, err := k.Features(n.Index)
	if err != nil || !on[0][kernel.Forwarding] {
		return "", err
	}
	what := fmt.Sprintf("%s of link %s, which weftd had turned on", kernel.Forwarding, n.Link)
	if dry {
		return what, nil
	}
	return what, k.SetFeature(n.Index, kernel.Forwarding, false)
}

// GiveBack turns off what weftd had turned on of the underlay's device, by what it noted in its state
// directory, and says what it turned off: "" for nothing. A dry run only says it. The error wraps unix.EPERM
// without CAP_NET_ADMIN.
func GiveBack(stateDir string, dry bool) (what string, err error) {
	file := filepath.Join(stateDir, ForwardingFile)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	k, err := kernel.OpenKernel()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	place, err := k.Place()
	if err != nil {
		return "", err
	}
	n, err := loadForwarded(file, place)
	if err != nil || n == nil { // a note of another namespace is not ours to use, nor to forget
		return "", err
	}
	what, err = giveBackForwarding(k, *n, dry)
	if err == nil && !dry {
		if err = os.Remove(file); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return what, err
}
