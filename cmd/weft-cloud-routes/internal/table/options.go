package table

import (
	"fmt"
	"log/slog"
	"net/netip"

	"weft/routing/routecontrol"
)

// Options are those of every cloud.
type Options struct {
	// Networks are the overlay's: no other route is ours.
	Networks []netip.Prefix
	Logger   *slog.Logger
	// Called is told of each call by its name, and of its result: "ok", "throttled", "refused" or "failed". It
	// is nil, or safe for concurrent use.
	Called func(call, result string)
	// Sized is told how many routes of each family a table has, others' included, whenever one is read; nil for
	// nobody.
	Sized func(table, family string, routes int)
}

// Inside reports whether dst is a part of one of the overlay's networks. A route to all of one is nobody's
// subnet, and so not ours: it is neither made nor deleted.
func (o Options) Inside(dst netip.Prefix) bool {
	for _, n := range o.Networks {
		if n.Bits() < dst.Bits() && n.Contains(dst.Addr()) {
			return true
		}
	}
	return false
}

// Size tells Sized of a table with routes to these destinations.
func (o Options) Size(table string, dsts []netip.Prefix) {
	if o.Sized == nil {
		return
	}
	size := map[bool]int{}
	for _, d := range dsts {
		size[d.Addr().Is4()]++
	}
	o.Sized(table, "ipv4", size[true])
	o.Sized(table, "ipv6", size[false])
}

// Answer is what a cloud answered to a call, as far as people and metrics have to know.
type Answer int

// Answers.
const (
	OK        Answer = iota
	Throttled        // it asks for fewer calls
	Forbidden        // the credentials lack a right, or are none
	Refused          // it will not, and trying again does not help
	Failed           // it could not, or did not answer
)

// Said counts a call of a name, and says what its error means for people. right is what the credentials need
// for it, in the cloud's words.
func (o Options) Said(call, right string, a Answer, err error) error {
	result := map[Answer]string{OK: "ok", Throttled: "throttled", Forbidden: "refused", Refused: "refused",
		Failed: "failed"}[a]
	if o.Called != nil {
		o.Called(call, result)
	}
	switch a {
	case OK:
		return nil
	case Throttled:
		return fmt.Errorf("%s: %w", right, ErrSlow)
	case Forbidden:
		return fmt.Errorf("the credentials of this program may not %s: %w", right, err)
	case Failed:
		return &outage{fmt.Errorf("%s: %w", right, err)}
	case Refused:
	}
	return fmt.Errorf("%s: %w", right, err)
}

// outage is the error of a call that the cloud did not answer, or could not: nobody has to mend anything, and
// a later round tries again.
type outage struct{ err error }

func (o *outage) Error() string { return o.err.Error() }

func (o *outage) Unwrap() []error { return []error{o.err, routecontrol.ErrPending} }
