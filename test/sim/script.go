package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"
)

// Kind is what happens to a cluster.
type Kind uint8

// What happens. Each says which fields of an Op it reads beside At and Machine.
const (
	_     Kind = iota
	Start      // weftd starts, if it does not run
	Stop       // weftd is told to stop
	Kill       // weftd is killed
	// a copy of the machine starts at an address of its own; N odd: with the same state directory
	Clone
	CutStore    // the machine has no way to the store, For
	CutLink     // Machine and Other have no way to each other, For
	Unplug      // the machine has no way to anybody, For
	Suspend     // the machine stands still, For; N odd: and so does its clock
	Clock       // the machine's clock is set forward by For
	Address     // the machine gets an address that nobody had; N odd: that one that is off had
	Config      // the network configuration becomes number N
	ConfigGone  // the network configuration is deleted, and is back after For; N odd: all records with it
	StoreDown   // the store does not answer, For
	ReadOnly    // the store refuses to write, For
	Slow        // the member of the store that the machine watches lags by N ms, For
	Compact     // the store forgets its history, so that watches begin anew
	Backup      // the store is copied
	Restore     // the store goes back to the copy, or to what it was at first; N odd: as another cluster
	Wipe        // the store is another, empty one, and has its configuration back after For
	LoseReplies // the next N answers of the store to the machine are lost
	Late        // the next N requests of the machine reach the store after it has given them up
	Delete      // an operator deletes the machine's record
	Scribble    // an operator writes over the machine's record: garbage, as flannel, as another node (N)
	Reserve     // an operator makes the machine's record one that does not end
	Stranger    // an operator writes a record of subnet N of a node that there is not
	DiskFull    // nothing can be saved on the machine, For
	kinds
)

// What happens only to Nodes in the Kubernetes API. There Config restarts all, Delete deletes the machine's
// Node, and its kubelet makes it again after For, and Scribble and Stranger are about annotations.
const (
	Recidr   Kind = kinds + iota // the machine's Node gets another podCIDR; N odd: that of Other's
	Touch                        // others write N times to the machine's Node what is nothing to us
	Conflict                     // the next N patches meet a write that came before
	allKinds
)

// kubeKinds are the kinds that a script of Kubernetes draws from.
func kubeKinds() []Kind {
	return []Kind{Start, Stop, Kill, Clone, CutStore, CutLink, Unplug, Suspend, Clock, Address, Config,
		StoreDown, ReadOnly, Slow, Compact, Backup, Restore, Wipe,
		LoseReplies, Late, DiskFull, Delete, Scribble, Stranger, Recidr, Touch, Conflict}
}

func (k Kind) String() string {
	names := [...]string{"?", "start", "stop", "kill", "clone", "cut-store", "cut-link", "unplug", "suspend",
		"clock", "address", "config", "config-gone",
		"store-down", "read-only", "slow", "compact", "backup", "restore", "wipe", "lose-replies", "late", "delete",
		"scribble", "reserve", "stranger",
		"disk-full", "recidr", "touch", "conflict"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Op is one thing that happens.
type Op struct {
	At             time.Duration // since the beginning
	Do             Kind
	Machine, Other int
	For            time.Duration
	N              int
}

func (o Op) String() string {
	s := fmt.Sprintf("%14s  %-12s m%d", o.At, o.Do, o.Machine)
	if o.Do == CutLink {
		s += fmt.Sprintf(" m%d", o.Other)
	}
	if o.For != 0 {
		s += fmt.Sprintf(" for %s", o.For)
	}
	if o.N != 0 {
		s += fmt.Sprintf(" n=%d", o.N)
	}
	return s
}

// Script is a cluster and what happens to it.
type Script struct {
	Seed     uint64 // of what is left to chance while it runs: delays, and the cores' own draws
	Machines int
	Config   int  // the number of the first configuration
	Kube     bool // the store is the Kubernetes API, and not etcd
	Ops      []Op // by At
}

func (s Script) String() string {
	var b strings.Builder
	store := "etcd"
	if s.Kube {
		store = "Kubernetes"
	}
	fmt.Fprintf(&b, "seed %d of %s, %d machines, configuration %d, %d operations:\n", s.Seed, store, s.Machines,
		s.Config, len(s.Ops))
	for _, o := range s.Ops {
		fmt.Fprintf(&b, "%s\n", o)
	}
	return b.String()
}

// end is when the last operation is over, as far as it ends by itself.
func (s Script) end() (end time.Duration) {
	for _, o := range s.Ops {
		end = max(end, o.At+o.For)
	}
	return end
}

// most machines there are, with the clones.
const mostMachines = 8

// Generate draws a script of a cluster with etcd from a seed.
func Generate(seed uint64) Script { return generate(seed, false, etcdKinds()) }

// etcdKinds are the kinds that a script of etcd draws from.
func etcdKinds() []Kind {
	all := make([]Kind, 0, kinds-1)
	for k := Start; k < kinds; k++ {
		all = append(all, k)
	}
	return all
}

// GenerateKube draws a script of a cluster with the Kubernetes API.
func GenerateKube(seed uint64) Script { return generate(seed, true, kubeKinds()) }

func generate(seed uint64, kubernetes bool, all []Kind) Script {
	rng := rand.New(rand.NewPCG(seed, 1))
	s := Script{Seed: seed, Machines: 2 + rng.IntN(4), Kube: kubernetes}
	if rng.IntN(4) == 0 {
		s.Config = rng.IntN(goodConfigs)
		if kubernetes && s.Config == goodConfigs-1 { // which is about lengths, on which another decides there
			s.Config = 0
		}
	}
	together := time.Duration(rng.Int64N(int64(5 * time.Second)))
	for m := range s.Machines {
		s.Ops = append(s.Ops, Op{At: time.Duration(rng.Int64N(int64(together + 1))), Do: Start, Machine: m})
	}
	slices.SortStableFunc(s.Ops, func(a, b Op) int { return int(a.At - b.At) })
	at := together
	long := rng.IntN(5) == 0 // a day passes once, so that leases run out
	day := 26 * time.Hour
	if kubernetes { // where nothing runs out
		day = time.Hour
	}
	clones := 0
	favoured := all[rng.IntN(len(all))] // a run that has much of one thing gets further with it
	for range 3 + rng.IntN(30) {
		pause := gap(rng)
		if long && rng.IntN(8) == 0 {
			long, pause = false, time.Duration(rng.Int64N(int64(day))).Round(time.Second)
		}
		at += pause
		o := Op{At: at, Do: all[rng.IntN(len(all))], Machine: rng.IntN(s.Machines), Other: rng.IntN(s.Machines),
			N: rng.IntN(8)}
		if rng.IntN(6) == 0 {
			o.Do = favoured
		}
		if kubernetes && (o.Do == Delete || o.Do == Restore) {
			o.For = gap(rng)
		}
		switch o.Do {
		case CutStore, CutLink, Unplug, Suspend, Clock, ConfigGone, StoreDown, ReadOnly, Slow, Wipe, DiskFull:
			o.For = gap(rng)
			if long && rng.IntN(8) == 0 {
				long, o.For = false, time.Duration(rng.Int64N(int64(day))).Round(time.Second)
			}
		case Clone:
			if rng.IntN(4) > 0 { // most copies are found soon
				s.Ops = append(s.Ops, Op{At: at + gap(rng), Do: Kill, Machine: s.Machines + clones})
			}
			clones++
		case Kill, Stop:
			if rng.IntN(4) > 0 { // most machines come back soon
				s.Ops = append(s.Ops, Op{At: at + gap(rng), Do: Start, Machine: o.Machine})
			}
		default: // lasts no time, and nothing follows
		}
		if o.Do == Slow {
			o.N = 1 << rng.IntN(15)
		}
		s.Ops = append(s.Ops, o)
	}
	slices.SortStableFunc(s.Ops, func(a, b Op) int {
		switch {
		case a.At < b.At:
			return -1
		case a.At > b.At:
			return 1
		}
		return 0
	})
	return s
}

// gap is the time between two things, most of them short, since what is to meet has to be near.
func gap(rng *rand.Rand) time.Duration {
	most := 2 * time.Second
	switch rng.IntN(12) {
	case 0, 1:
		most = 100 * time.Millisecond
	case 2, 3:
		most = time.Minute
	case 4:
		most = 10 * time.Minute
	}
	return time.Duration(rng.Int64N(int64(most))).Round(time.Millisecond)
}

// JSON is the script as ReadScript reads it.
func (s Script) JSON() string {
	var b strings.Builder
	fmt.Fprintf(&b, "{\"Seed\":%d,\"Machines\":%d,\"Config\":%d,\"Kube\":%t,\"Ops\":[", s.Seed, s.Machines,
		s.Config, s.Kube)
	for i, o := range s.Ops {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n{\"At\":%q,\"Do\":%q,\"Machine\":%d,\"Other\":%d,\"For\":%q,\"N\":%d}", o.At, o.Do,
			o.Machine, o.Other, o.For, o.N)
	}
	b.WriteString("]}\n")
	return b.String()
}

// ReadScript reads a script from a file. The error says what in it is none.
func ReadScript(path string) (Script, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Script{}, err
	}
	var in struct {
		Seed             uint64
		Machines, Config int
		Kube             bool
		Ops              []struct {
			At, Do, For       string
			Machine, Other, N int
		}
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return Script{}, fmt.Errorf("%s: %w", path, err)
	}
	s := Script{Seed: in.Seed, Machines: in.Machines, Config: in.Config, Kube: in.Kube}
	if in.Machines < 1 || in.Machines > mostMachines || in.Config < 0 || in.Config >= len(configs) {
		return s, fmt.Errorf("%s: %d machines, configuration %d: want 1 to %d, and one below %d", path, in.Machines,
			in.Config, mostMachines, len(configs))
	}
	for _, o := range in.Ops {
		op := Op{Machine: o.Machine, Other: o.Other, N: o.N}
		var faults [2]error
		op.At, faults[0] = time.ParseDuration(o.At)
		op.For, faults[1] = time.ParseDuration(o.For)
		for k := Start; k < allKinds; k++ {
			if k.String() == o.Do {
				op.Do = k
			}
		}
		if err := errors.Join(faults[:]...); err != nil || op.Do == 0 || o.Machine < 0 || o.Other < 0 || o.N < 0 {
			return s, fmt.Errorf("%s: %+v is no operation: %w", path, o, err)
		}
		s.Ops = append(s.Ops, op)
	}
	return s, nil
}
