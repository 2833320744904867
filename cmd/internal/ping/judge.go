package ping

import (
	"fmt"
	"slices"

	"weft/cmd/internal/diagnose"
)

// evidence is what was learnt of a route. receivedFromPeer says that packets of the peer arrived while it was
// asked.
type evidence struct {
	w                Route
	rows             []layerResult
	receivedFromPeer bool
}

// at is the row of a layer, nil if the way has none.
func (s *evidence) at(l diagnose.Layer) *layerResult {
	for i := range s.rows {
		if s.rows[i].Layer == l {
			return &s.rows[i]
		}
	}
	return nil
}

// answers reports whether a layer answered something.
func (s *evidence) answers(l diagnose.Layer) bool { f := s.at(l); return f != nil && f.Answered > 0 }

// silent reports whether a layer was asked, and nothing came back.
func (s *evidence) silent(l diagnose.Layer) bool {
	f := s.at(l)
	return f != nil && f.State == diagnose.Silent
}

// restsOn are the layers whose answers need the layer: those above it. Nothing rests on a daemon.
func restsOn(l diagnose.Layer) []diagnose.Layer {
	if l == diagnose.Daemon {
		return nil
	}
	all := []diagnose.Layer{diagnose.Underlay, diagnose.Port, diagnose.DataPlane, diagnose.Daemon,
		diagnose.Bridge, diagnose.Pod}
	return all[slices.Index(all, l)+1:]
}

// proven reports whether something answered that would not if the layer were broken.
func (s *evidence) proven(l diagnose.Layer) bool { return slices.ContainsFunc(restsOn(l), s.answers) }

// judge says what the answers mean.
func (s *evidence) judge() Result {
	r := Result{Family: family(s.w.Six), Backend: s.w.Backend, Path: s.w.DataPath}
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
	r.Causes = diagnose.Of(s.w.Path, s.fact(first)).Causes
	return r
}

func (f *layerResult) state() diagnose.State {
	switch {
	case f.out.Cannot != "":
		return diagnose.NotAsked
	case f.Answered > 0 && f.Answered < f.Sent:
		return diagnose.Lossy
	case f.hole:
		return diagnose.Narrow
	case f.largeLost > 1: // one may be lost by chance
		return diagnose.Lossy
	case f.Answered > 0:
		return diagnose.Answered
	case f.out.Said != nil && !f.out.Said.By.IsValid():
		return diagnose.Unsent
	case f.out.Said != nil:
		return diagnose.Refused
	}
	return diagnose.Silent
}

// verdict judges one layer, and says what is odd about it.
func (s *evidence) verdict(f *layerResult) (Verdict, string) {
	switch f.State {
	case diagnose.NotAsked:
		if s.w.Unused != "" {
			return Broken, f.out.Cannot
		}
		return Unknown, f.out.Cannot
	case diagnose.Answered:
		switch {
		case f.MTUUnfinished && f.MTU == 0:
			return Note, fmt.Sprintf("packets of %d bytes and more were lost while others passed, and the search "+
				"for a limit did not end: ask again", least(f.To))
		case f.MTUUnfinished:
			return Note, fmt.Sprintf("packets of %d bytes passed, and the search for a limit below %d did not end: "+
				"ask again", f.MTU, f.Expected)
		}
		if f.wide != nil && f.MTU < f.Expected {
			return Note, fmt.Sprintf("the way carries %d bytes and not %d, as %s says: senders are told, and "+
				"nothing is lost for long", f.MTU, f.Expected, f.wide.Who())
		}
		return OK, ""
	case diagnose.Lossy:
		if f.largeLost > 1 {
			return Broken, fmt.Sprintf("%d of %d packets of %d bytes, or their answers, were lost, and of %d small "+
				"ones none", f.largeLost, f.largeSent, f.MTU, f.Sent)
		}
		return Broken, fmt.Sprintf("%d of %d questions, or their answers, were lost", f.Sent-f.Answered, f.Sent)
	case diagnose.Narrow:
		return Broken, fmt.Sprintf("packets above %d bytes are lost without a word, and up to %d are sent", f.MTU,
			f.Expected)
	case diagnose.Refused, diagnose.Unsent, diagnose.Silent:
	}
	said := ""
	if f.out.Said != nil {
		said = f.out.Said.String()
	}
	if s.proven(f.Layer) {
		switch {
		case f.Layer == diagnose.Port && !s.w.AnswersPort:
			return OK, "nobody answers at the " + s.w.What() + " itself; what goes through it does"
		case f.Layer == diagnose.Bridge:
			return Note, "the bridge's address does not answer, and the pod behind it does: a rule for INPUT there, " +
				"or pods without a bridge"
		}
		return Note, "it does not answer itself, and what rests on it does: a firewall drops these questions" +
			inBrackets(said)
	}
	switch {
	case f.Layer == diagnose.Port && f.out.NoAnswers != "" && f.State == diagnose.Silent:
		return Unknown, f.out.NoAnswers
	case f.Layer == diagnose.Port && !s.w.AnswersPort && f.State == diagnose.Silent:
		return Unknown, "nobody answers at the " + s.w.What() +
			" itself, and nobody rejected it: the layers above tell"
	case f.Layer == diagnose.Daemon && f.State == diagnose.Refused:
		return Broken, "its host answers that nothing listens there" + inBrackets(said)
	case f.Layer == diagnose.Bridge && !s.w.Pod.IsValid() &&
		(s.answers(diagnose.DataPlane) || s.answers(diagnose.Daemon)):
		return Note, "nobody has the bridge's address: there has been no pod on that node yet, or its bridge is " +
			"gone (ip -br addr there)" + inBrackets(said)
	case f.State == diagnose.Silent:
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
func (s *evidence) alike(f *layerResult) (out []diagnose.Layer) {
	if f.State != diagnose.Silent {
		return nil
	}
	may := func(layers ...diagnose.Layer) {
		for _, l := range layers {
			if s.silent(l) {
				out = append(out, l)
			}
		}
	}
	switch f.Layer {
	case diagnose.Underlay: // where ICMP is dropped, that says nothing
		may(diagnose.Port, diagnose.DataPlane)
	case diagnose.Port: // a weftd that is stopped answers neither, and sends nothing
		if !s.receivedFromPeer {
			may(diagnose.DataPlane)
		}
	case diagnose.DataPlane:
		if !s.answers(diagnose.Port) {
			may(diagnose.Port)
		}
	case diagnose.Bridge:
		may(diagnose.Pod)
	case diagnose.Daemon, diagnose.Pod:
	}
	return out
}

// fact is what diagnose is told of a layer.
func (s *evidence) fact(f *layerResult) diagnose.Fact {
	return diagnose.Fact{
		Layer: f.Layer, State: f.State, To: f.To, Said: f.out.Said, MTU: f.MTU,
		Heard: s.receivedFromPeer, PortAnswers: s.answers(diagnose.Port),
		UnderlayAnswers: s.answers(diagnose.Underlay),
	}
}
