package hostrules

import (
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

// dropTable is the table of family inet that has everything which drops. The networks of a host share it; the
// names of chains and sets end with the label of theirs.
const dropTable = "weft"

// These are the stems of names in dropTable.
const (
	chainInput     = "overlay-input"
	chainForward   = "overlay-forward"
	chainSealedIn  = "sealed-in"
	chainSealedOut = "sealed-out"
	setLinks       = "overlay-links"
)

func setPeers(ipv6 bool) string {
	if ipv6 {
		return "overlay-peers6"
	}
	return "overlay-peers4"
}

func stems() []string {
	return []string{chainInput, chainForward, chainSealedIn, chainSealedOut, setLinks, setPeers(false),
		setPeers(true)}
}

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

// hook is where a chain of nftables is called.
type hook struct {
	kind     nftables.ChainType
	num      *nftables.ChainHook
	priority *nftables.ChainPriority
}

// nftChain is a chain as it should be.
type nftChain struct {
	name string
	hook
	rules []rule
}

// dropChains are those of dropTable, by stem. They come before filter, since a rule of somebody else that
// accepts a packet must not be heard first; in nftables a later chain may drop it all the same.
func dropChains(v4, v6 familyRules) []nftChain {
	mangle := nftables.ChainPriorityMangle
	return slices.DeleteFunc([]nftChain{
		{chainInput, hook{nftables.ChainTypeFilter, nftables.ChainHookInput, mangle},
			slices.Concat(v4.input, v6.input)},
		{chainForward, hook{nftables.ChainTypeFilter, nftables.ChainHookForward, mangle},
			slices.Concat(v4.onward, v6.onward)},
		{chainSealedIn, hook{nftables.ChainTypeFilter, nftables.ChainHookPrerouting, mangle},
			slices.Concat(v4.sealedIn, v6.sealedIn)},
		{chainSealedOut, hook{nftables.ChainTypeFilter, nftables.ChainHookPostrouting, mangle},
			slices.Concat(v4.sealedOut, v6.sealedOut)},
	}, func(c nftChain) bool { return len(c.rules) == 0 })
}

// drops keeps the chains and sets of one network in dropTable.
type drops struct {
	label string
	scope scope
	// chains and sets are what was made last, and mark is how the kernel showed them then; "" before the first
	// success.
	chains []nftChain
	sets   map[string][]string // keys, sorted, by stem
	mark   string

	last, total Dropped // what the rules had counted, and what was dropped since we began
	counted     bool
}

// newDrops is for the network of those prefixes.
func newDrops(s scope, network netip.Prefix) *drops { return &drops{label: label(network), scope: s} }

func (d *drops) name(stem string) string { return stem + "-" + d.label }

// dropSets are the sets that the rules refer to.
func dropSets(chains []nftChain, v4, v6 familyRules, links []string) map[string][]string {
	sets := map[string][]string{}
	for _, c := range chains {
		for _, r := range c.rules {
			if r.inside {
				sets[setLinks] = nil
			}
			if r.fromStranger || r.toPeer {
				sets[setPeers(r.ipv6)] = nil
			}
		}
	}
	for stem := range sets {
		var keys []string
		switch stem {
		case setLinks:
			for _, l := range links {
				keys = append(keys, string(linkName(l)))
			}
		default:
			for _, a := range slices.Concat(v4.peers, v6.peers) {
				if setPeers(a.Is6()) == stem {
					keys = append(keys, string(a.AsSlice()))
				}
			}
		}
		slices.Sort(keys)
		sets[stem] = keys
	}
	return sets
}

// held is what the kernel has of one network in dropTable.
type held struct {
	table  bool
	chains []string
	sets   []string
	other  bool // somebody else, perhaps another network, has something in the table
	rules  int
	keys   map[string]int
	mark   string // differs if anything was changed, even if it was put back
	// sealed4 and sealed6 count the rules of a seal in each family.
	sealed4, sealed6 int
	dropped          Dropped
}

// readDrops reads the chains and sets that are of the network.
func readDrops(s scope) (h held, err error) {
	h.keys = map[string]int{}
	c, err := connect()
	if err != nil {
		return h, absent(err)
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return h, absent(err)
	}
	i := slices.IndexFunc(tables, func(t *nftables.Table) bool { return t.Name == dropTable })
	if i < 0 {
		return h, nil
	}
	h.table = true
	var w strings.Builder
	fmt.Fprintln(&w, "flags", tables[i].Flags)
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return h, err
	}
	for _, ch := range chains {
		if ch.Table.Name != dropTable {
			continue
		}
		if !s.owns(ch.Name) {
			h.other = true
			continue
		}
		h.chains = append(h.chains, ch.Name)
		rules, err := c.GetRules(tables[i], ch)
		if err != nil {
			return h, fmt.Errorf("rules of chain %s: %w", ch.Name, err)
		}
		if ch.Hooknum != nil {
			fmt.Fprintln(&w, ch.Name, *ch.Hooknum, *ch.Priority, *ch.Policy)
		}
		for _, r := range rules {
			fmt.Fprintln(&w, ch.Name, r.Handle)
			h.rules++
			h.count(ch.Name, r)
		}
	}
	sets, err := c.GetSets(tables[i])
	if err != nil {
		return h, fmt.Errorf("sets of table %s: %w", dropTable, err)
	}
	for _, set := range sets {
		if !s.owns(set.Name) {
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

// sync makes the network's part of dropTable as wanted. Where only peers or links differ, only the sets
// change; else all is written anew, in one transaction. repaired says that somebody else had changed it.
func (d *drops) sync(v4, v6 familyRules, links []string) (wrote, repaired bool, err error) {
	chains := dropChains(v4, v6)
	sets := dropSets(chains, v4, v6, links)
	have, err := readDrops(d.scope)
	if errors.Is(err, errNoNFTables) {
		return false, false, err
	}
	if err != nil {
		have.mark = "unreadable" // somebody has put something strange there: it is written anew
	}
	if d.counted {
		d.total = d.total.plus(have.dropped.minus(d.last))
	}
	d.last, d.counted = have.dropped, true
	intact := d.mark != "" && d.mark == have.mark
	same := reflect.DeepEqual(chains, d.chains)
	if same && intact && reflect.DeepEqual(sets, d.sets) || len(chains) == 0 &&
		len(have.chains)+len(have.sets) == 0 {
		d.chains, d.sets = chains, sets
		return false, false, nil
	}
	repaired = d.mark != "" && !intact
	c, err := connect()
	if err != nil {
		return false, false, absent(err)
	}
	if same && intact {
		err = d.difference(c, sets)
		if err == nil {
			err = c.Flush()
		}
	}
	if !same || !intact || err != nil {
		if c, err = connect(); err == nil {
			err = d.whole(c, have, chains, sets)
		}
		if err == nil {
			err = absent(c.Flush())
		}
	}
	if err != nil { // nothing is written, and mark still says what there was
		return false, false, fmt.Errorf("nftables table inet %s: %w", dropTable, err)
	}
	after, err := readDrops(d.scope)
	if err != nil {
		return true, repaired, err
	}
	d.last = after.dropped
	if !after.shows(chains, sets, d.name) {
		return true, repaired, fmt.Errorf("nftables table inet %s: somebody else changes it", dropTable)
	}
	d.chains, d.sets, d.mark = chains, sets, after.mark
	return true, repaired, nil
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
func (d *drops) whole(c *nftables.Conn, have held, chains []nftChain, sets map[string][]string) error {
	t := &nftables.Table{Name: dropTable, Family: nftables.TableFamilyINet}
	removeDrops(c, have, len(chains) == 0)
	if len(chains) == 0 {
		return nil
	}
	c.AddTable(t)
	for i, stem := range slices.Sorted(maps.Keys(sets)) {
		s := d.set(stem)
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
	for _, ch := range chains {
		addChain(c, t, d.name(ch.name), ch.hook)
		for _, r := range ch.rules {
			addRule(c, t, d.name(ch.name), r.nft(d.name, false), r.comment)
		}
	}
	return nil
}

// removeDrops deletes what have names, and with it the table if nobody else has something there.
func removeDrops(c *nftables.Conn, have held, table bool) {
	t := &nftables.Table{Name: dropTable, Family: nftables.TableFamilyINet}
	if have.table && table && !have.other {
		c.DelTable(t)
		return
	}
	for _, name := range have.chains {
		c.FlushChain(&nftables.Chain{Name: name, Table: t})
	}
	for _, name := range have.chains {
		c.DelChain(&nftables.Chain{Name: name, Table: t})
	}
	for _, name := range have.sets {
		c.DelSet(&nftables.Set{Name: name, Table: t})
	}
}

func addChain(c *nftables.Conn, t *nftables.Table, name string, h hook) {
	accept := nftables.ChainPolicyAccept
	c.AddChain(&nftables.Chain{Name: name, Table: t, Type: h.kind, Hooknum: h.num, Priority: h.priority,
		Policy: &accept})
}

func addRule(c *nftables.Conn, t *nftables.Table, chain string, es []expr.Any, comment string) {
	c.AddRule(&nftables.Rule{Table: t, Chain: &nftables.Chain{Name: chain, Table: t}, Exprs: es,
		UserData: userdata.AppendString(nil, userdata.TypeComment, comment)})
}

func (d *drops) set(stem string) *nftables.Set {
	s := &nftables.Set{Table: &nftables.Table{Name: dropTable, Family: nftables.TableFamilyINet},
		Name: d.name(stem)}
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
func (d *drops) difference(c *nftables.Conn, sets map[string][]string) error {
	for stem, keys := range sets {
		gone := slices.DeleteFunc(slices.Clone(d.sets[stem]), in(keys))
		added := slices.DeleteFunc(slices.Clone(keys), in(d.sets[stem]))
		if err := elements(c.SetDeleteElements, d.set(stem), gone); err != nil {
			return err
		}
		if err := elements(c.SetAddElements, d.set(stem), added); err != nil {
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

// Dropped counts packets that the rules have dropped.
type Dropped struct {
	// Pods counts what came to the overlay's port from pods, or by a link that leads to no peer. Strangers
	// counts what came to the kernel's vxlan from an address that is no peer's. Plain counts what came or would
	// have left in plain where a Seal forbids it.
	Pods, Strangers, Plain uint64
}

func (d Dropped) plus(e Dropped) Dropped {
	return Dropped{d.Pods + e.Pods, d.Strangers + e.Strangers, d.Plain + e.Plain}
}

// minus returns by how much d exceeds e, which was read before it; rules that were made anew begin at 0.
func (d Dropped) minus(e Dropped) Dropped {
	return Dropped{d.Pods - min(d.Pods, e.Pods), d.Strangers - min(d.Strangers, e.Strangers),
		d.Plain - min(d.Plain, e.Plain)}
}
