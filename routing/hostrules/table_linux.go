package hostrules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// errNoNFTables is for a kernel without nf_tables, or one whose module is not loaded.
var errNoNFTables = errors.New("the kernel has no nf_tables: load the module nf_tables")

// absent tells a kernel without nf_tables by err.
func absent(err error) error {
	for _, e := range []error{unix.EINVAL, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", errNoNFTables, err)
		}
	}
	return err
}

// Supported reports whether the kernel has the nf_tables that a Seal needs.
func Supported() error {
	c, err := connect()
	if err == nil {
		_, err = c.ListTablesOfFamily(nftables.TableFamilyINet)
	}
	return absent(err)
}

// connect collects a transaction. Its socket has room for one with all the peers of a large cluster, or as
// much as the system's limit allows.
func connect() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error {
		_ = c.SetWriteBuffer(8 << 20)
		_ = c.SetReadBuffer(8 << 20)
		return nil
	}))
}

// table keeps the chains and sets of one network in a table. The networks of a host share the table; the
// names of chains and sets end with the label of theirs.
type table struct {
	nftables.Table
	network     netip.Prefix // of which the label is
	scope       scope
	randomFully bool
	// chains and sets are what was made last, and mark is how the kernel showed them then; "" before the first
	// success.
	chains []nftChain
	sets   map[string][]string // keys, sorted, by stem
	mark   string

	last, total Dropped // what the rules had counted, and what was dropped since we began
	counted     bool
}

// newTables returns the tables for the networks of a scope: the one that drops, and flannel's of either
// family.
func newTables(s scope, networks []netip.Prefix, randomFully bool) (drops *table, flannels [2]*table) {
	drops = &table{Table: nftables.Table{Name: dropTable, Family: nftables.TableFamilyINet}, scope: s}
	for i, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		flannels[i] = &table{Table: nftables.Table{Name: flannelTable(i == 1), Family: family}, scope: s,
			randomFully: randomFully}
	}
	for _, n := range networks {
		drops.network = cmp.Or(drops.network, n)
		if n.Addr().Is4() {
			flannels[0].network = n
		} else {
			flannels[1].network = n
		}
	}
	return drops, flannels
}

func (t *table) String() string {
	if t.Family == nftables.TableFamilyINet {
		return "nftables table inet " + t.Name
	}
	return "nftables table " + t.Name
}

func (t *table) named(stem string) string { return stem + "-" + label(t.network) }

// comment is that of a rule. In flannel's tables it ends with the network: an earlier weft, which may keep
// another network's rules in flannel's own chains, tells by that whose they are.
func (t *table) comment(r rule) string {
	if t.Name == dropTable {
		return r.comment
	}
	return r.comment + " " + t.network.Masked().String()
}

// held is what the kernel has of one network in a table.
type held struct {
	table  bool
	chains []string
	sets   []string
	// flannel are chains with flannel's names and rules, which it made or an earlier weft. Of those marked has
	// the ones with rules of that weft. shared has our rules and flannel's in such chains in which an earlier
	// weft keeps another network's.
	flannel, marked []string
	shared          []*nftables.Rule
	other           bool // somebody else, perhaps another network, has something in the table
	rules           int
	keys            map[string]int
	mark            string // differs if anything was changed, even if it was put back
	// sealed4 and sealed6 count the rules of a seal in each family.
	sealed4, sealed6 int
	dropped          Dropped
}

// read reads the chains and sets that are of the network.
func (t *table) read() (h held, err error) {
	h.keys = map[string]int{}
	c, err := connect()
	if err != nil {
		return h, absent(err)
	}
	tables, err := c.ListTablesOfFamily(t.Family)
	if err != nil {
		return h, absent(err)
	}
	i := slices.IndexFunc(tables, func(x *nftables.Table) bool { return x.Name == t.Name })
	if i < 0 {
		return h, nil
	}
	h.table = true
	var w strings.Builder
	fmt.Fprintln(&w, "flags", tables[i].Flags)
	chains, err := c.ListChainsOfTableFamily(t.Family)
	if err != nil {
		return h, err
	}
	for _, ch := range chains {
		flannel := t.Name != dropTable && (ch.Name == chainFlannel || ch.Name == chainPostrtg)
		switch {
		case ch.Table.Name != t.Name:
			continue
		case !flannel && !t.scope.owns(ch.Name):
			h.other = true
			continue
		}
		rules, err := c.GetRules(tables[i], ch)
		if err != nil {
			return h, fmt.Errorf("rules of chain %s: %w", ch.Name, err)
		}
		all := len(rules)
		if flannel {
			rules = slices.DeleteFunc(rules, t.scope.others)
		}
		if len(rules) < all {
			h.other, h.shared = true, append(h.shared, rules...)
		} else {
			fmt.Fprintln(&w, ch.Name)
			if ch.Hooknum != nil {
				fmt.Fprintln(&w, *ch.Hooknum, *ch.Priority, *ch.Policy)
			}
		}
		for _, r := range rules {
			fmt.Fprintln(&w, ch.Name, r.Handle)
			h.count(ch.Name, r)
		}
		if !flannel {
			h.chains, h.rules = append(h.chains, ch.Name), h.rules+len(rules)
			continue
		}
		if len(rules) < all {
			continue
		}
		h.flannel = append(h.flannel, ch.Name)
		if slices.ContainsFunc(rules, func(r *nftables.Rule) bool { return isMarked(string(r.UserData)) }) {
			h.marked = append(h.marked, ch.Name)
		}
	}
	sets, err := c.GetSets(tables[i])
	if err != nil {
		return h, fmt.Errorf("sets of %v: %w", t, err)
	}
	for _, set := range sets {
		if !t.scope.owns(set.Name) {
			h.other = true
			continue
		}
		h.sets = append(h.sets, set.Name)
		elements, err := c.GetSetElements(set)
		if err != nil {
			return h, fmt.Errorf("elements of set %s: %w", set.Name, err)
		}
		keys := make([]string, len(elements))
		for i, e := range elements {
			keys[i] = string(e.Key)
		}
		slices.Sort(keys)
		h.keys[set.Name] = len(keys)
		fmt.Fprintf(&w, "%s %t %x\n", set.Name, set.Interval, keys)
	}
	h.mark = w.String()
	return h, nil
}

// others reports whether a rule of flannel's tables is another network's.
func (s scope) others(r *nftables.Rule) bool {
	for _, c := range []string{commentMasquerade, commentForward} {
		if _, rest, ok := strings.Cut(string(r.UserData), c+" "); ok {
			p, err := netip.ParsePrefix(strings.TrimRight(rest, "\x00"))
			return err == nil && !s.has(p)
		}
	}
	return false
}

// count adds what a rule has dropped, and says which family's seal it is part of.
func (h *held) count(chain string, r *nftables.Rule) {
	for _, e := range r.Exprs {
		switch e := e.(type) {
		case *expr.Counter:
			switch comment := string(r.UserData); {
			case strings.Contains(comment, commentStranger):
				h.dropped.Strangers += e.Packets
			case strings.Contains(comment, commentPods):
				h.dropped.Pods += e.Packets
			case strings.Contains(comment, commentSealed):
				h.dropped.Plain += e.Packets
			}
		case *expr.Cmp:
			switch {
			case !strings.HasPrefix(chain, "sealed-") || len(e.Data) != 1:
			case e.Data[0] == unix.NFPROTO_IPV4:
				h.sealed4++
			case e.Data[0] == unix.NFPROTO_IPV6:
				h.sealed6++
			}
		}
	}
}

// sync makes the network's part of the table as wanted. Where only sets differ, only these change; else all
// is written anew, in one transaction, and flannel's own chains go. repaired says that somebody else had
// changed it.
func (t *table) sync(chains []nftChain, sets map[string][]string) (wrote, repaired bool, err error) {
	have, err := t.read()
	if errors.Is(err, errNoNFTables) {
		return false, false, err
	}
	if err != nil {
		have.mark = "unreadable" // somebody has put something strange there: it is written anew
	}
	if t.counted {
		t.total = t.total.plus(have.dropped.minus(t.last))
	}
	t.last, t.counted = have.dropped, true
	intact := t.mark != "" && t.mark == have.mark
	same := reflect.DeepEqual(chains, t.chains)
	if same && intact && reflect.DeepEqual(sets, t.sets) || len(chains) == 0 &&
		len(have.chains)+len(have.sets)+len(have.flannel)+len(have.shared) == 0 {
		t.chains, t.sets = chains, sets
		return false, false, nil
	}
	repaired = t.mark != "" && !intact
	c, err := connect()
	if err != nil {
		return false, false, absent(err)
	}
	if same && intact {
		err = t.difference(c, sets)
		if err == nil {
			err = c.Flush()
		}
	}
	if !same || !intact || err != nil {
		if c, err = connect(); err == nil {
			err = t.whole(c, have, chains, sets)
		}
		if err == nil {
			err = absent(c.Flush())
		}
	}
	if err != nil { // nothing is written, and mark still says what there was
		return false, false, fmt.Errorf("%v: %w", t, err)
	}
	after, err := t.read()
	if err != nil {
		return true, repaired, err
	}
	t.last = after.dropped
	if !after.shows(chains, sets, t.named) {
		return true, repaired, fmt.Errorf("%v: somebody else changes it", t)
	}
	t.chains, t.sets, t.mark = chains, sets, after.mark
	return true, repaired, nil
}

// accept makes a table of flannel's as wanted.
func (t *table) accept(_ context.Context, _ scope, want familyRules) (wrote, repaired bool, err error) {
	return t.sync(flannelChains(want), nil)
}

// shows reports whether h has as many chains, rules and elements as were written.
func (h held) shows(chains []nftChain, sets map[string][]string, name func(string) string) bool {
	rules := 0
	for _, c := range chains {
		rules += len(c.rules)
	}
	for stem, keys := range sets {
		if h.keys[name(stem)] != len(keys) {
			return false
		}
	}
	return len(h.chains) == len(chains) && h.rules == rules && len(h.sets) == len(sets)
}

// whole writes the network's chains and sets anew.
func (t *table) whole(c *nftables.Conn, have held, chains []nftChain, sets map[string][]string) error {
	have.chains = append(have.chains, have.flannel...)
	if err := t.remove(c, have, len(chains) == 0); err != nil || len(chains) == 0 {
		return err
	}
	c.AddTable(&t.Table)
	for i, stem := range slices.Sorted(maps.Keys(sets)) {
		s := t.set(stem)
		// The library would count with a variable of the process, which two networks would change at once. A
		// number holds for one transaction.
		s.ID = uint32(i + 1)
		if err := c.AddSet(s, nil); err != nil {
			return err
		}
		if err := elements(c.SetAddElements, s, sets[stem]); err != nil {
			return err
		}
	}
	var set func(string) string
	if t.Family == nftables.TableFamilyINet {
		set = t.named
	}
	accept := nftables.ChainPolicyAccept
	for _, ch := range chains {
		chain := &nftables.Chain{Name: t.named(ch.name), Table: &t.Table, Type: ch.kind, Hooknum: ch.num,
			Priority: ch.priority, Policy: &accept}
		c.AddChain(chain)
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: &t.Table, Chain: chain, Exprs: r.nft(set, t.randomFully),
				UserData: userdata.AppendString(nil, userdata.TypeComment, t.comment(r))})
		}
	}
	return nil
}

// remove deletes the chains and sets that have names, and the rules that it shares, and with all the table if
// nobody else has something there.
func (t *table) remove(c *nftables.Conn, have held, all bool) error {
	if have.table && all && !have.other {
		c.DelTable(&t.Table)
		return nil
	}
	for _, r := range have.shared {
		if err := c.DelRule(r); err != nil {
			return err
		}
	}
	for _, name := range have.chains {
		c.FlushChain(&nftables.Chain{Name: name, Table: &t.Table})
	}
	for _, name := range have.chains {
		c.DelChain(&nftables.Chain{Name: name, Table: &t.Table})
	}
	for _, name := range have.sets {
		c.DelSet(&nftables.Set{Name: name, Table: &t.Table})
	}
	return nil
}

func (t *table) set(stem string) *nftables.Set {
	s := &nftables.Set{Table: &t.Table, Name: t.named(stem)}
	switch stem {
	case setLinks:
		s.KeyType, s.KeyByteOrder = nftables.TypeIFName, binaryutil.NativeEndian // or nft prints no name
	case setPeers(true):
		s.KeyType = nftables.TypeIP6Addr
	default:
		s.KeyType = nftables.TypeIPAddr
	}
	return s
}

// difference changes the elements in which the sets differ from those that were made last.
func (t *table) difference(c *nftables.Conn, sets map[string][]string) error {
	for stem, keys := range sets {
		gone := slices.DeleteFunc(slices.Clone(t.sets[stem]), in(keys))
		added := slices.DeleteFunc(slices.Clone(keys), in(t.sets[stem]))
		if err := elements(c.SetDeleteElements, t.set(stem), gone); err != nil {
			return err
		}
		if err := elements(c.SetAddElements, t.set(stem), added); err != nil {
			return err
		}
	}
	return nil
}

// in reports whether a key is among some that are sorted.
func in(keys []string) func(string) bool {
	return func(key string) bool { _, found := slices.BinarySearch(keys, key); return found }
}

// elementsAtOnce bounds the elements of one message, whose length has 16 bits.
const elementsAtOnce = 1000

func elements(change func(*nftables.Set, []nftables.SetElement) error, s *nftables.Set, keys []string) error {
	for some := range slices.Chunk(keys, elementsAtOnce) {
		es := make([]nftables.SetElement, len(some))
		for i, k := range some {
			es[i].Key = []byte(k)
		}
		if err := change(s, es); err != nil {
			return fmt.Errorf("set %s: %w", s.Name, err)
		}
	}
	return nil
}
