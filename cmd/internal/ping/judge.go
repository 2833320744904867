package ping

import (
	"fmt"
	"slices"
)

// seen is what was learnt of a way. heard says that packets of the peer arrived while it was asked.
type seen struct {
	w     Route
	rows  []layerResult
	heard bool
}

// at is the row of a layer, nil if the way has none.
func (s *seen) at(l Layer) *layerResult {
	for i := range s.rows {
		if s.rows[i].Layer == l {
			return &s.rows[i]
		}
	}
	return nil
}

// answers reports whether a layer answered something.
func (s *seen) answers(l Layer) bool { f := s.at(l); return f != nil && f.Answered > 0 }

// silent reports whether a layer was asked, and nothing came back.
func (s *seen) silent(l Layer) bool { f := s.at(l); return f != nil && f.State == Silent }

// restsOn are the layers whose answers need the layer.
func restsOn(l Layer) []Layer {
	switch l {
	case Underlay:
		return []Layer{Port, DataPlane, Daemon, Bridge, Pod}
	case Port:
		return []Layer{DataPlane, Daemon, Bridge, Pod}
	case DataPlane:
		return []Layer{Daemon, Bridge, Pod}
	case Bridge:
		return []Layer{Pod}
	case Daemon, Pod:
	}
	return nil
}

// proven reports whether something answered that would not if the layer were broken.
func (s *seen) proven(l Layer) bool { return slices.ContainsFunc(restsOn(l), s.answers) }

// judge says what the answers mean.
func (s *seen) judge() Result {
	r := Result{Family: family(s.w.Six), Backend: s.w.Backend, Path: s.w.Path}
	for i := range s.rows {
		s.rows[i].State = s.rows[i].state()
	}
	var first *layerResult
	for i := range s.rows {
		f := &s.rows[i]
		f.Verdict, f.Detail = s.verdict(f)
		if first == nil && f.Verdict == Broken {
			first = f
		} else if first != nil && f.Verdict == Broken && f.Answered == 0 {
			f.Verdict, f.Detail = Unknown, "it rests on what is broken"
		}
		r.Layers = append(r.Layers, f.Row)
	}
	if first == nil {
		return r
	}
	r.Broken, r.Alike = first.Layer, s.alike(first)
	r.Causes = s.causes(first)
	return r
}

func (f *layerResult) state() State {
	switch {
	case f.out.Cannot != "":
		return NotAsked
	case f.Answered > 0 && f.Answered < f.Sent:
		return Lossy
	case f.hole:
		return Narrow
	case f.Answered > 0:
		return Answered
	case f.out.Said != nil && !f.out.Said.By.IsValid():
		return Unsent
	case f.out.Said != nil:
		return Refused
	}
	return Silent
}

// verdict judges one layer, and says what is odd about it.
func (s *seen) verdict(f *layerResult) (Verdict, string) {
	switch f.State {
	case NotAsked:
		return Unknown, f.out.Cannot
	case Answered:
		switch {
		case f.MTUUnfinished && f.MTU == 0:
			return Note, fmt.Sprintf("packets of %d bytes and more were lost while others passed, and the search for a limit did not end: ask again", least(f.To))
		case f.MTUUnfinished:
			return Note, fmt.Sprintf("packets of %d bytes passed, and the search for a limit below %d did not end: ask again", f.MTU, f.Expected)
		}
		if f.wide != nil && f.MTU < f.Expected {
			return Note, fmt.Sprintf("the way carries %d bytes and not %d, as %s says: senders are told, and nothing is lost for long", f.MTU, f.Expected, f.wide.who())
		}
		return OK, ""
	case Lossy:
		return Broken, fmt.Sprintf("%d of %d questions, or their answers, were lost", f.Sent-f.Answered, f.Sent)
	case Narrow:
		return Broken, fmt.Sprintf("packets above %d bytes are lost without a word, and up to %d are sent", f.MTU, f.Expected)
	case Refused, Unsent, Silent:
	}
	said := ""
	if f.out.Said != nil {
		said = f.out.Said.String()
	}
	if s.proven(f.Layer) {
		switch {
		case f.Layer == Port && !s.w.AnswersPort:
			return OK, "nobody answers at the " + s.w.what() + " itself; what goes through it does"
		case f.Layer == Bridge:
			return Note, "the bridge's address does not answer, and the pod behind it does: a rule for INPUT there, or pods without a bridge"
		}
		return Note, "it does not answer itself, and what rests on it does: a firewall drops these questions" + inBrackets(said)
	}
	switch {
	case f.Layer == Port && f.out.NoAnswers != "" && f.State == Silent:
		return Unknown, f.out.NoAnswers
	case f.Layer == Port && !s.w.AnswersPort && f.State == Silent:
		return Unknown, "nobody answers at the " + s.w.what() + " itself, and nobody rejected it: the layers above tell"
	case f.Layer == Daemon && f.State == Refused:
		return Broken, "its host answers that nothing listens there" + inBrackets(said)
	case f.Layer == Bridge && !s.w.Pod.IsValid() && (s.answers(DataPlane) || s.answers(Daemon)):
		return Note, "nobody has the bridge's address: there has been no pod on that node yet, or its bridge is gone (ip -br addr there)" + inBrackets(said)
	case f.State == Silent:
		return Broken, "no answer"
	}
	return Broken, said
}

func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// alike are the layers that may be broken in place of the first broken one.
func (s *seen) alike(f *layerResult) (out []Layer) {
	if f.State != Silent {
		return nil
	}
	may := func(layers ...Layer) {
		for _, l := range layers {
			if s.silent(l) {
				out = append(out, l)
			}
		}
	}
	switch f.Layer {
	case Underlay: // where ICMP is dropped, that says nothing
		may(Port, DataPlane)
	case Port: // a weftd that is stopped answers neither, and sends nothing
		if !s.heard {
			may(DataPlane)
		}
	case DataPlane:
		if !s.answers(Port) {
			may(Port)
		}
	case Bridge:
		may(Pod)
	case Daemon, Pod:
	}
	return out
}

// String is the message in words.
func (s *Said) String() string {
	what := map[Kind]string{
		KindPort: "nothing listens there, or a rule rejects it (ICMP port unreachable)", KindHost: "the host is not reached (ICMP host unreachable)",
		KindProtocol: "nothing there takes the IP protocol (ICMP protocol unreachable)",
		KindNet:      "there is no route (ICMP network unreachable)", KindProhibited: "a rule forbids it (ICMP administratively prohibited)",
		KindExpired: "the packet went round in circles (ICMP time exceeded)", KindTooBig: "the packet is too long (ICMP fragmentation needed)",
	}[s.Kind]
	if what == "" {
		what = s.Text
	}
	if !s.By.IsValid() {
		what = s.Text
	}
	return s.who() + ": " + what
}

func (s *Said) who() string {
	if !s.By.IsValid() {
		return "this host's kernel"
	}
	return s.By.String()
}
