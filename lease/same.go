package lease

import "slices"

// Same reports whether a backend would do the same with both sets: it leaves
// times of expiry and revisions out, which every renewal changes.
func (s Set) Same(t Set) bool {
	return s.Alarm == t.Alarm && SameRecord(s.Own, t.Own) && s.Config.Equal(t.Config) &&
		slices.EqualFunc(s.Peers, t.Peers, SameRecord) && slices.EqualFunc(s.Rejected, t.Rejected, sameRejected)
}

// SameRecord reports whether both records say the same, but for revisions and times of expiry.
func SameRecord(a, b Record) bool {
	return a.Subnets == b.Subnets && a.Reservation == b.Reservation && SameKube(a.Kube, b.Kube) &&
		a.Attrs.Equal(b.Attrs)
}

// SameKube reports whether both name one Node object, or none.
func SameKube(a, b *KubeNode) bool { return a == b || a != nil && b != nil && *a == *b }

func sameRejected(a, b Rejected) bool { return a.Key == b.Key && a.Reason == b.Reason }
