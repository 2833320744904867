package kube

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"weft/lease"
	"weft/lease/keeper"
)

// Two machines of one name have one Node, which says where one of them is. If it names another address than
// ours before it has said ours for namesakeSettled, we ask whether a machine lives there, and write nothing
// before we know. If it names one later, somebody has written over what is ours, and we put it right, unless
// it is the whole word of another weft: one of our name may have found us silent, as while this machine was
// suspended, and serves now. A Node that was made anew has never said anything of us: another machine that
// waited may have been the first to write there.
const (
	namesakeWait    = 1500 * time.Millisecond // for an answer
	namesakeSlack   = time.Second             // until it has come from whoever asked
	namesakeAgain   = 5 * time.Second         // between rounds with one
	namesakeSettled = 3 * time.Second
	// namesakeRounds is how many rounds without an answer make the other machine silent; one is enough if
	// the Node was written from our own state directory.
	namesakeRounds = 3
	// namesakeTrusted is how long silence is one, while our Node cannot be written: whoever was away may be
	// back.
	namesakeTrusted = 20 * time.Second
)

// namesake is what is known of whoever else our Node tells of. The zero value asks.
type namesake struct {
	right   time.Time                   // when our Node first said what we say; zero for not since the start
	said    lease.Attrs                 // what it said of us last
	sent    lease.Attrs                 // what we wrote last, which may come to be there later
	uid     types.UID                   // of the Node that said so
	contest bool                        // since it told of another, which came up before we had settled
	about   [2]netip.Addr               // whom it told of last
	theirs  lease.Attrs                 // what it told of them
	rounds  keeper.Rounds               // of asking about it
	asked   int                         // the number of the last question, of all rounds
	gone    map[[2]netip.Addr]time.Time // since when they are known not to answer
	node    types.UID                   // of the Node of which about, rounds and gone are
}

// namesakeError says who else our Node tells of.
type namesakeError struct {
	node    string
	address netip.Addr
	ours    netip.Addr
	lives   bool
	keys    keys
}

func (e *namesakeError) Error() string {
	if !e.lives {
		return fmt.Sprintf("Node %q says that it is at %s, and we are at %s: asking whether another machine of "+
			"that name lives", e.node, e.address, e.ours)
	}
	return fmt.Sprintf("Node %q is another machine at %s, which answers: this one, at %s, writes nothing and "+
		"waits: if it is a copy, give it a host name of its own and an empty --cache-dir, and let it register as "+
		"another Node; if %s is somebody else's by now: kubectl annotate node %s %s- %s-",
		e.node, e.address, e.ours, e.address, e.node, e.keys.public, e.keys.publicV6)
}

// otherMachine returns a *namesakeError while another machine of our Node's name lives, or may live. It asks.
func (c *Life) otherMachine() error {
	n := &c.namesake
	if n.node != c.ours.UID { // made anew: whoever was silent may have made it
		n.node, n.about, n.rounds, n.gone = c.ours.UID, [2]netip.Addr{}, keeper.Rounds{}, nil
	}
	theirs, ok := c.elsewhere()
	if !ok && n.contest && c.garbled() {
		// whoever lives there puts it right; who takes the word away, as the error advises, gives it to us
		theirs, ok = n.theirs, true
	}
	if ok {
		theirs, ok = c.unclaimed(theirs)
	}
	if !ok || c.o.Underlay == nil {
		n.contest = false
		return nil
	}
	about := [2]netip.Addr{theirs.PublicIP, theirs.PublicIPv6}
	if !n.contest {
		settled := n.uid == c.ours.UID && !n.right.IsZero() && c.Now.Sub(n.right) > namesakeSettled
		if settled && (theirs.Weft == nil || theirs.Equal(n.said) || theirs.Equal(n.sent)) {
			return nil
		}
		n.contest = true
	}
	if n.about != about {
		n.about, n.rounds = about, keeper.Rounds{}
	}
	n.theirs = theirs
	if n.rounds.Under && !c.Now.Before(n.rounds.Next) { // whoever asks has not even said that there is no answer
		n.end(false, c.Now)
	}
	need := namesakeRounds
	if c.o.State != "" && theirs.State() == c.o.State {
		need = 1
	}
	if since, ok := n.gone[about]; ok && c.Now.Sub(since) > namesakeTrusted {
		// and we have not been able to write since
		delete(n.gone, about)
		n.rounds = keeper.Rounds{}
	}
	_, gone := n.gone[about]
	if n.rounds.Silent >= need && !gone {
		c.Log(slog.LevelWarn, "nobody answers where our Node says that it is: it is written anew",
			"event", lease.EventPutBack, "node", c.name, "address", theirs.Address())
		if n.gone == nil {
			n.gone = map[[2]netip.Addr]time.Time{}
		}
		n.gone[about], gone = c.Now, true
	}
	if gone {
		return nil
	}
	if !n.rounds.Under && !c.Now.Before(n.rounds.Next) {
		n.rounds.Begin(c.Now.Add(namesakeWait + namesakeSlack))
		n.asked++
		c.Do(keeper.AskUnderlay{Round: n.asked, Attrs: theirs})
	}
	return &namesakeError{node: c.name, address: theirs.Address(), ours: c.announced().Attrs.Address(),
		lives: n.rounds.Answered > 0, keys: c.keys}
}

// unclaimed is what our Node says, without the addresses that another Node publishes, since whoever answers
// there is that one, and without those of a family that is off, which nobody publishes. ok is false if no
// address is left.
func (c *Life) unclaimed(theirs lease.Attrs) (_ lease.Attrs, ok bool) {
	if !c.o.Config.EnableIPv4 {
		theirs.PublicIP = netip.Addr{}
	}
	if !c.o.Config.EnableIPv6 {
		theirs.PublicIPv6 = netip.Addr{}
	}
	for _, n := range c.view.nodes {
		if n.Kube.Name == c.name || !n.managed || n.bad != nil {
			continue
		}
		if n.PublicIP == theirs.PublicIP {
			theirs.PublicIP = netip.Addr{}
		}
		if n.PublicIPv6 == theirs.PublicIPv6 {
			theirs.PublicIPv6 = netip.Addr{}
		}
	}
	return theirs, theirs.Address().IsValid()
}

// answered ends the round that a is of, if it is under way.
func (n *namesake) answered(a Answered, now time.Time) {
	if n.rounds.Under && a.Round == n.asked {
		n.end(a.Yes, now)
	}
}

// end ends a round.
func (n *namesake) end(yes bool, now time.Time) {
	n.rounds.End(now, yes)
	if yes {
		n.rounds.Next = now.Add(namesakeAgain)
	}
}

// due is when the round ends, or the next one begins; the zero time if nothing is asked.
func (n *namesake) due() time.Time {
	since, gone := n.gone[n.about]
	switch {
	case !n.contest:
		return time.Time{}
	case gone:
		return since.Add(namesakeTrusted + 1)
	}
	return n.rounds.Next
}

// garbled reports whether our Node has a word that nobody can read.
func (c *Life) garbled() bool {
	_, err := c.keys.decode(c.ours.Annotations)
	return err != nil && c.keys.isManaged(c.ours.Annotations)
}

// elsewhere returns what our Node says of itself, and true, if that is of another machine. An annotation that
// does not parse is ignored; and if one of the addresses is ours, as behind one that an administrator gave,
// the Node speaks of us.
func (c *Life) elsewhere() (lease.Attrs, bool) {
	if !c.keys.isManaged(c.ours.Annotations) {
		return lease.Attrs{}, false
	}
	theirs, err := c.keys.decode(c.ours.Annotations)
	if err != nil {
		return lease.Attrs{}, false
	}
	local := c.announced()
	a := local.Attrs
	here := append(slices.Concat(local.Underlay, a.Weft.Addrs), a.PublicIP, a.PublicIPv6)
	there := []netip.Addr{theirs.PublicIP, theirs.PublicIPv6}
	if theirs.Weft != nil {
		there = append(there, theirs.Weft.Addrs...)
	}
	known := false
	for _, addr := range there {
		if !addr.IsValid() || addr.IsUnspecified() {
			continue
		}
		if known = true; slices.Contains(here, addr) {
			return lease.Attrs{}, false
		}
	}
	return theirs, known
}
