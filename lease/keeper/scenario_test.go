package keeper_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weft/lease"
	"weft/lease/belief"
	"weft/lease/keeper"
	"weft/lease/leasetest"
)

var update = flag.Bool("update", false, "rewrite the scenarios in testdata with what happens now")

// TestScenarios plays each story of testdata/*.txt: a line that begins with "> "
// is done, and what follows is what changed in the five seconds after it.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenario in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = play(t, string(want)) })
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(want) {
				t.Errorf("%s: got\n%s", file, got)
			}
		})
	}
}

// story is a store and the nodes on it.
type story struct {
	t      *testing.T
	dir    string // of caches
	store  *leasetest.Store
	backup leasetest.Backup
	config string
	nodes  map[string]*actor
	seen   map[string]string // last line printed about each node
	net    *underlay
}

// actor is one node: a keeper that runs.
type actor struct {
	keeper *keeper.Keeper
	store  *line
	addr   string
	stop   func()

	mu  sync.Mutex
	set lease.Set
	err error
}

func play(t *testing.T, text string) string {
	s := &story{t: t, dir: t.TempDir(), nodes: map[string]*actor{}, seen: map[string]string{},
		net: &underlay{up: map[netip.Addr]bool{}}, config: `{"Network":"10.244.0.0/16"}`}
	s.store = leasetest.New("cluster-1", []byte(s.config))
	var out strings.Builder
	for line := range lines(text) {
		command, ok := strings.CutPrefix(line, "> ")
		if !ok {
			if strings.HasPrefix(line, "#") || line == "" {
				fmt.Fprintln(&out, line)
			}
			continue
		}
		fmt.Fprintln(&out, line)
		fmt.Fprint(&out, s.do(strings.Fields(command)))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		fmt.Fprint(&out, s.changes())
	}
	for _, n := range s.nodes {
		n.stop()
	}
	return out.String()
}

func lines(text string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
			if !yield(sc.Text()) {
				return
			}
		}
	}
}

// do runs one command; what it returns is printed before what changed.
func (s *story) do(args []string) string {
	rest := strings.Join(args[1:], " ")
	switch args[0] {
	case "config": // config JSON: the store's, and that of nodes started later
		s.config = rest
		s.store.SetConfig([]byte(rest))
	case "noconfig":
		s.store.SetConfig(nil)
	case "start": // start NAME ADDRESS [id=ID] [state=NAME] [previous=SUBNET] [cache=NAME]
		s.start(args[1], args[2], args[3:])
	case "alive", "dead":
		// alive ADDRESS: whether it answers over the underlay, as those of nodes that were started do
		s.net.set(args[1], args[0] == "alive")
	case "cut", "back": // cut NAME: it has no store any more, and goes on
		s.nodes[args[1]].store.cut(args[0] == "cut")
	case "readdress": // readdress NAME ADDRESS
		s.net.set(s.nodes[args[1]].addr, false)
		s.net.set(args[2], true)
		s.nodes[args[1]].addr = args[2]
		s.nodes[args[1]].keeper.SetLocal(local(args[2]))
	case "stop":
		s.nodes[args[1]].stop()
		s.net.set(s.nodes[args[1]].addr, false)
		delete(s.nodes, args[1])
		delete(s.seen, args[1])
	case "wait":
		d, err := time.ParseDuration(args[1])
		if err != nil {
			s.t.Fatal(err)
		}
		time.Sleep(d)
	case "down", "up":
		s.store.SetDown(args[0] == "down")
	case "forget":
		s.store.ForgetReplies(1)
	case "backup":
		s.backup = s.store.Backup()
	case "restore": // restore [CLUSTER]
		s.store.Restore(s.backup, rest)
	case "wipe": // wipe CLUSTER
		s.store.Wipe(rest)
	case "put": // put KEY TTL VALUE
		ttl, _ := time.ParseDuration(args[2])
		s.store.PutRaw(args[1], []byte(strings.Join(args[3:], " ")), ttl)
	case "reserve": // reserve KEY: as etcdctl put of the same value
		s.store.PutRaw(args[1], s.store.Value(args[1]), 0)
	case "delete":
		s.store.Remove(args[1])
	case "crowd": // crowd COUNT: so many nodes in the same moment
		return s.crowd(args[1])
	case "store":
		return s.list()
	default:
		s.t.Fatalf("unknown command %q", args)
	}
	return ""
}

func local(addrs string) keeper.Local {
	var l keeper.Local
	for a := range strings.SplitSeq(addrs, ",") {
		addr := netip.MustParseAddr(a)
		l.Underlay = append(l.Underlay, addr)
		if addr.Is4() {
			l.Attrs.PublicIP = addr
		} else {
			l.Attrs.PublicIPv6 = addr
		}
	}
	return l
}

func (s *story) start(name, addr string, options []string) {
	n := &actor{addr: addr, store: &line{Store: s.store}}
	s.net.set(addr, true)
	h := fnv.New64()
	h.Write([]byte(name))
	o := keeper.Options{
		Node: name, State: name, Underlay: s.net.from(addr), Config: leasetest.Config(s.t, s.config),
		Local: local(addr),
		Rand:  rand.New(rand.NewPCG(1, h.Sum64())),
		Publish: func(set lease.Set) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.set = set
		},
	}
	for _, option := range options {
		switch key, value, _ := strings.Cut(option, "="); key {
		case "id":
			o.Node = value
		case "state":
			o.State = value
		case "previous":
			o.Previous = leasetest.Subnets(s.t, value)
		case "cache": // a name, so that a later start finds it
			o.Cache = belief.NewCache(filepath.Join(s.dir, value), "scenario")
			if c, err := o.Cache.Load(); err == nil {
				o.Cached, o.Config = &c, leasetest.Config(s.t, string(c.Memory.Config))
			}
		}
	}
	k, err := keeper.New(n.store, o)
	if err != nil {
		s.t.Fatal(err)
	}
	n.keeper = k
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		err := k.Run(ctx)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.err = err
	})
	n.stop = func() { cancel(); wg.Wait() }
	s.nodes[name] = n
}

// crowd starts many nodes at once and says what they got.
func (s *story) crowd(count string) string {
	many, err := strconv.Atoi(count)
	if err != nil {
		s.t.Fatal(err)
	}
	s.store.SetLatency(20 * time.Millisecond)
	defer s.store.SetLatency(0)
	for i := range many {
		addr := netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i)}).String()
		if leasetest.Config(s.t, s.config).EnableIPv6 {
			addr += fmt.Sprintf(",2001:db8::%x", 100+i)
		}
		s.start(fmt.Sprintf("crowd-%d", i), addr, nil)
	}
	time.Sleep(400 * time.Millisecond) // less than the back-off after an error
	synctest.Wait()
	held := map[lease.Subnets]bool{}
	ready, peers := 0, 0
	for name, n := range s.nodes {
		st := n.keeper.Status()
		if st.Ready() {
			ready++
		}
		for other := range held {
			if other.Overlaps(st.Own.Subnets) {
				s.t.Errorf("%s overlaps %s", st.Own.Subnets, other)
			}
		}
		held[st.Own.Subnets] = true
		peers += st.Peers
		n.stop()
		delete(s.nodes, name)
	}
	return fmt.Sprintf("%d ready, %d subnets, %d peers seen\n", ready, len(held), peers)
}

// changes prints each node whose state differs from what was printed last.
func (s *story) changes() string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		line := s.nodes[name].String()
		if line != s.seen[name] {
			fmt.Fprintf(&out, "%s %s\n", name, line)
		}
		s.seen[name] = line
	}
	return out.String()
}

func (n *actor) String() string {
	st := n.keeper.Status()
	n.mu.Lock()
	defer n.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", st.State, n.set.Own.Subnets)
	if n.set.Own.Reservation {
		b.WriteString(" reserved")
	}
	var peers []string
	for _, p := range n.set.Peers {
		peers = append(peers, p.Subnets.String())
	}
	fmt.Fprintf(&b, " peers=[%s]", strings.Join(peers, " "))
	for _, r := range n.set.Rejected {
		fmt.Fprintf(&b, "\n  rejected %s: %s: %s", r.Key, r.Reason, r.Detail)
	}
	for _, note := range st.Notes {
		fmt.Fprintf(&b, "\n  note: %s", note)
	}
	if n.set.Alarm != "" {
		// Which of two nodes writes first after a restore is not part of the story.
		alarm := regexp.MustCompile(`revision \d+ to \d+`).ReplaceAllString(n.set.Alarm, "revision N to M")
		fmt.Fprintf(&b, "\n  alarm: %s", alarm)
	}
	if st.Err != nil {
		fmt.Fprintf(&b, "\n  error: %s", st.Err)
	}
	if st.ConfigErr != nil {
		fmt.Fprintf(&b, "\n  config: %s", st.ConfigErr)
	}
	if n.err != nil {
		fmt.Fprintf(&b, "\n  run ended: %s", n.err)
	}
	return b.String()
}

// list prints the store as an operator would see it.
func (s *story) list() string {
	snap, err := s.store.Snapshot(context.Background())
	if err != nil {
		return err.Error() + "\n"
	}
	var out strings.Builder
	for _, r := range snap.Records {
		life := "reserved"
		if !r.Reservation {
			life = time.Until(r.Expires).Round(time.Hour).String()
		}
		fmt.Fprintf(&out, "  %s node=%q at %s %s\n", r.Key(), r.Node(), r.Address(), life)
	}
	for _, b := range snap.Bad {
		fmt.Fprintf(&out, "  %s is bad\n", b.Key)
	}
	return out.String()
}
