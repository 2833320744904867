package daemon

import (
	"slices"
	"testing"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/routing"
)

// listener is a member that notes what it is told.
type listener struct {
	member
	told []string
}

func (l *listener) SetDataPath(broken, _, _ string) { l.told = append(l.told, broken) }

func TestAMemberIsToldOfEveryChangeOfTheDataPath(t *testing.T) {
	d, l := &Daemon{}, &listener{}
	g := &overlay{member: l}
	good := control.Snapshot{Backend: routing.Status{InPlace: true}}
	silent := good // nobody can be told, and packets flow
	silent.Lease = lease.Status{State: lease.Unconfirmed}
	bad := control.Snapshot{Backend: routing.Status{UnderlayLost: "eth0 is down"}}
	for _, s := range []control.Snapshot{{}, good, good, silent, bad, bad, good} {
		d.tellDataPath(g, &s)
	}
	if want := []string{"routes: not in place yet", "", "underlay: eth0 is down", ""}; !slices.Equal(l.told, want) {
		t.Errorf("got %q, want %q", l.told, want)
	}
	d.tellDataPath(nil, &good)
	d.tellDataPath(&overlay{member: l.member}, &good) // who does not want to know
	next := &overlay{member: l}
	d.tellDataPath(next, &good)
	if len(l.told) != 5 {
		t.Error("the next overlay's is not told at once")
	}
}
