package sim

import (
	"fmt"
	"strings"
	"time"

	"weft/lease"
	"weft/lease/keeper"
	"weft/lease/kube"
)

// lazily makes a text when it is printed.
type lazily func() string

func (f lazily) String() string { return f() }

func describeEvent(e keeper.Event) string {
	switch e := e.(type) {
	case keeper.Begin:
		return "begin"
	case keeper.Stop:
		return "stop"
	case keeper.Tick:
		return "tick"
	case keeper.Saved:
		return fmt.Sprintf("saved %t %v", e.Written, e.Err)
	case keeper.Result:
		return fmt.Sprintf("result %d: %s%d %v", e.Number, describeSnapshot(e.Snapshot), e.Revision, e.Err)
	case kube.Listed:
		return "list " + e.Version
	case kube.Saw:
		return "saw " + e.Node.Name + "/" + e.Node.ResourceVersion
	case kube.Gone:
		return "gone " + e.Node.Name
	case kube.Answered, kube.Watches, kube.Found, kube.Probed:
		return fmt.Sprintf("%T %+v", e, e)
	case keeper.News:
		s := "news"
		if e.Snapshot != nil {
			s += " " + describeSnapshot(*e.Snapshot)
		}
		if e.Lost != nil {
			s += fmt.Sprintf(" lost: %v", e.Lost)
		}
		for _, m := range e.Messages {
			s += fmt.Sprintf(" message from %s (%s) asks %t answers %q about %s at %d", m.From, m.Node, m.Asks,
				m.Answers, m.Subnets, m.Revision)
		}
		if e.Answered != 0 {
			s += fmt.Sprintf(" answered %d", e.Answered)
		}
		if e.Local != nil {
			s += fmt.Sprintf(" local %s", e.Local.Attrs.PublicIP)
		}
		if e.Proven {
			s += " proven"
		}
		return s
	}
	return fmt.Sprintf("%T", e)
}

func describeSnapshot(s lease.Snapshot) string {
	if s.ClusterID == "" {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "snapshot of %s at %d config %t:", s.ClusterID, s.Revision, s.Config != nil)
	for _, r := range s.Records {
		fmt.Fprintf(&b, " %s=%s@%s/%d", r.Subnets, r.Node(), r.Address(), r.Revision)
	}
	return b.String()
}

func describeEffects(effects []keeper.Effect, now time.Time) string {
	var out []string
	for _, f := range effects {
		switch f := f.(type) {
		case keeper.Call:
			out = append(out, fmt.Sprintf("call %d: %s", f.Number, describeOperation(f.Operation)))
		case keeper.AskUnderlay:
			out = append(out, fmt.Sprintf("ask %s round %d", f.Attrs.Address(), f.Round))
		case keeper.SaveCache:
			out = append(out, fmt.Sprintf("save %s and %d", f.Cached.Own.Subnets, len(f.Cached.Memory.Peers)))
		case keeper.Publish:
			s := fmt.Sprintf("publish %s and", f.Set.Own.Subnets)
			for _, p := range f.Set.Peers {
				s += fmt.Sprintf(" %s=%s@%s", p.Subnets, p.Node(), p.Address())
			}
			out = append(out, s)
		case keeper.Wait:
			out = append(out, "wait "+f.Until.Sub(now).String())
		case keeper.Log:
			out = append(out, fmt.Sprintf("log %q %v", f.Message, f.Args))
		case kube.PatchNode:
			out = append(out, fmt.Sprintf("patch %s: %s", f.Node(), f.Body()))
		case kube.Tell:
			out = append(out, "tell "+f.Reason())
		case kube.FindNode, kube.WatchNodes, kube.ProbeServer:
			out = append(out, fmt.Sprintf("%T", f))
		}
	}
	return strings.Join(out, "; ")
}

func describeOperation(op keeper.Operation) string {
	switch op := op.(type) {
	case keeper.ReadStore:
		return "read"
	case keeper.WriteRecord:
		return fmt.Sprintf("write %s of %s@%s at %d", op.Subnets, op.Attrs.Node(), op.Attrs.Address(),
			op.IfRevision)
	case keeper.ReplaceRecord:
		return fmt.Sprintf("write %s instead of %s at %d", op.Subnets, op.Old, op.OldRevision)
	case keeper.DeleteRecord:
		return fmt.Sprintf("delete %s at %d", op.Subnets, op.IfRevision)
	case keeper.ReadRemaining:
		return fmt.Sprintf("remaining of %s", op.Subnets)
	case keeper.WriteConfig:
		return "write the configuration"
	case keeper.SendMessage:
		return fmt.Sprintf("tell %s: asks %t answers %q about %s at %d", op.Message.To, op.Message.Asks,
			op.Message.Answers, op.Message.Subnets, op.Message.Revision)
	}
	return "?"
}
