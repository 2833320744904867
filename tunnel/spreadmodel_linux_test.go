package tunnel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/bpf"

	"weft/encap"
)

// The model of a node with many workers. How flows get to workers is not modelled but done by
// the code itself: its hash chooses the lane, its program the socket, its loop forms the runs. What is
// modelled are the costs, and that the kernel's own hash of flows is as even as ours.

// model is the traffic of a node: flows from peers, of which each sends from so many lanes
// (0: from the tunnel's own port only, as flannel does). The rate of the k-th flow is k to the
// power of -skew.
type model struct {
	workers, lanes, peers, flows int
	skew                         float64
}

// modelFlow is a flow of a model: who reads it from the underlay, and who its other direction from the TUN.
type modelFlow struct {
	peer, lane      int
	rate            float64
	ingress, egress int
}

// place gives every flow to its workers.
func (m model) place(t testing.TB) []modelFlow {
	t.Helper()
	program, err := bpf.NewVM(sharingAt(0, false, m.workers))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(uint64(m.peers), uint64(m.flows)))
	// Ports as openLane finds them: somewhere, with the right remainder.
	ports := make([][lanePeriod + 1]uint16, m.peers)
	for i := range ports {
		ports[i][0] = modelPort
		for lane := 1; lane <= m.lanes; lane++ {
			ports[i][lane] = uint16(32768+rng.IntN(28000))&^(lanePeriod-1) | uint16(modelPort+lane)&(lanePeriod-1)
		}
	}
	flows := make([]modelFlow, m.flows)
	var sum float64
	for k, at := range rng.Perm(m.flows) {
		f := &flows[at]
		f.rate = math.Pow(float64(k+1), -m.skew)
		sum += f.rate
	}
	for i := range flows {
		f := &flows[i]
		f.rate /= sum
		f.peer = i % m.peers
		b := modelPacket(f.peer, i)
		in, err := encap.ParseInner(b)
		if err != nil {
			t.Fatal(err)
		}
		hash := encap.FlowPairHash(b, in)
		if m.lanes > 0 {
			f.lane = 1 + int(hash)&(m.lanes-1)
		}
		f.ingress = modelSocket(t, program, f.peer, ports[f.peer][f.lane])
		switch {
		case m.workers < 3: // one worker, or one for each direction
			f.ingress, f.egress = m.workers-1, 0
		case f.lane == 0: // crowded
			f.egress = int(hash % uint32(m.workers))
		default:
			f.egress = f.ingress
		}
	}
	return flows
}

const modelPort = 8285

// modelPacket is the header of a flow of 10.peer to us.
func modelPacket(peer, flow int) []byte {
	b := make([]byte, 28)
	b[0], b[8], b[9] = 0x45, 64, encap.ProtoUDP
	binary.BigEndian.PutUint16(b[2:], 28)
	binary.BigEndian.PutUint32(b[12:], 10<<24|uint32(peer+1)<<8|5)
	binary.BigEndian.PutUint32(b[16:], 10<<24|200<<16|6)
	binary.BigEndian.PutUint16(b[20:], uint16(32768+flow))
	binary.BigEndian.PutUint16(b[22:], 80)
	return b
}

// modelSocket is where the program puts a datagram of a peer from a port.
func modelSocket(t testing.TB, program *bpf.VM, peer int, port uint16) int {
	t.Helper()
	b := make([]byte, 28)
	b[0], b[9] = 0x45, encap.ProtoUDP
	binary.BigEndian.PutUint32(b[12:], 192<<24|168<<16|uint32(peer+1)) // a rack's addresses, one after the other
	binary.BigEndian.PutUint16(b[20:], port)
	n, err := program.Run(b)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// shares are each worker's part of what arrives, and of what leaves.
func (m model) shares(flows []modelFlow) (ingress, egress []float64) {
	ingress, egress = make([]float64, m.workers), make([]float64, m.workers)
	for _, f := range flows {
		ingress[f.ingress] += f.rate
		egress[f.egress] += f.rate
	}
	return ingress, egress
}

// busiest is the largest share, and how many have none.
func busiest(shares []float64) (most float64, idle int) {
	for _, s := range shares {
		if most = max(most, s); s == 0 {
			idle++
		}
	}
	return most, idle
}

// Costs of the model, nanoseconds a packet of 100 bytes, measured one by one on the machine
// that docs/scaling.md names.
const (
	costRead  = 625  // read(2) of the TUN
	costCode  = 120  // what BenchmarkHotPath says of egress, and a datagram's part of a run
	costSend  = 3600 // a run's system call, with the kernel's way to the device
	costWrite = 1900 // receive, and write(2) to the TUN of a packet that does not merge
)

// runLength is how many packets leave in one send when worker w empties its queue in full batches.
func (m model) runLength(flows []modelFlow, w int) float64 {
	var mine []modelFlow
	var sum []float64
	total := 0.0
	for _, f := range flows {
		if f.egress == w {
			total += f.rate
			mine, sum = append(mine, f), append(sum, total)
		}
	}
	if len(mine) == 0 {
		return 1
	}
	rng := rand.New(rand.NewPCG(3, uint64(w)))
	sends, packets := 0, 0
	for range 50 {
		c := crowdOf(maxReads, func() (peer, lane, size int) {
			x, i := rng.Float64()*total, 0
			for i < len(sum)-1 && sum[i] < x {
				i++
			}
			return mine[i].peer, mine[i].lane, 100
		})
		c.write()
		sends, packets = sends+c.wire.sends, packets+len(c.ps)
	}
	return float64(packets) / float64(sends)
}

// load is the time of the busiest worker, nanoseconds for each packet of either direction that the node moves,
// and the packets in a send of that worker.
func (m model) load(t testing.TB) (worst, run float64) {
	t.Helper()
	flows := m.place(t)
	ingress, egress := m.shares(flows)
	for w := range m.workers {
		length := m.runLength(flows, w)
		ns := egress[w]*(costRead+costCode+costSend/length) + ingress[w]*(costCode+costWrite)
		if ns > worst {
			worst, run = ns, length
		}
	}
	return worst, run
}

// TestModelSpreads wants what docs/scaling.md says of how evenly flows are shared out.
func TestModelSpreads(t *testing.T) {
	for _, c := range []struct {
		m            model
		most, egress float64 // the busiest worker's share, against an even one
	}{
		{model{workers: 4, lanes: 4, peers: 1, flows: 1000}, 1.15, 1.15},
		{model{workers: 8, lanes: 8, peers: 1, flows: 1000}, 1.25, 1.25},
		{model{workers: 8, lanes: 8, peers: 100, flows: 1000}, 1.3, 1.3},
		{model{workers: 8, lanes: 8, peers: 100, flows: 10000}, 1.15, 1.15},
		{model{workers: 8, lanes: 4, peers: 100, flows: 10000}, 1.4, 1.4},   // peers have half the CPUs
		{model{workers: 8, peers: 100, flows: 10000}, 2, 1.1},               // flannel's: one port each
		{model{workers: 8, peers: 1, flows: 1000}, 8.01, 1.25},              // a single one: one reader
		{model{workers: 4, lanes: 8, peers: 100, flows: 10000}, 1.15, 1.15}, // peers have twice the CPUs
	} {
		ingress, egress := c.m.shares(c.m.place(t))
		for what, s := range map[string]struct {
			shares []float64
			most   float64
		}{"ingress": {ingress, c.most}, "egress": {egress, c.egress}} {
			most, idle := busiest(s.shares)
			if most *= float64(c.m.workers); most > s.most || idle > 0 && s.most < 8 {
				t.Errorf("%+v: %s: the busiest worker has %.2f of an even share, %d are idle", c.m, what, most, idle)
			}
		}
	}
}

// TestModelPowersOfTwo is why DefaultWorkers takes one: with six workers the lanes of a
// peer meet by chance, and the busiest has more to do than the busiest of four.
func TestModelPowersOfTwo(t *testing.T) {
	worse := 0
	const trials = 50
	for flows := 1000; flows < 1000+trials; flows++ { // the seed as well
		six, _ := busiest(first(model{workers: 6, lanes: 4, peers: 1, flows: flows}, t))
		four, _ := busiest(first(model{workers: 4, lanes: 4, peers: 1, flows: flows}, t))
		if six >= four {
			worse++
		}
	}
	if worse < trials/2 {
		t.Errorf("six workers have a busier one than four in %d of %d cases only", worse, trials)
	}
}

func first(m model, t testing.TB) []float64 {
	t.Helper()
	ingress, _ := m.shares(m.place(t))
	return ingress
}

// BenchmarkModel is how the node's throughput of small packets grows with its workers: times is against one
// worker with the same traffic, busiest is against an even share.
func BenchmarkModel(b *testing.B) {
	for _, traffic := range []model{
		{peers: 1, flows: 1}, {peers: 1, flows: 8}, {peers: 1, flows: 1000},
		{peers: 10, flows: 1000}, {peers: 100, flows: 1000}, {peers: 100, flows: 10000}, {peers: 1000, flows: 10000},
		{peers: 100, flows: 10000, skew: 1},
	} {
		for _, kind := range []string{"weft", "flannel"} {
			for _, workers := range []int{1, 2, 4, 6, 8, 16} {
				m := traffic
				m.workers = workers
				if kind == "weft" && workers > 2 {
					m.lanes = min(lanePeriod, powerOfTwo(workers))
				}
				b.Run(fmt.Sprintf("flows=%d/skew=%g/peers=%d/kind=%s/workers=%d", m.flows, m.skew, m.peers, kind, workers), func(b *testing.B) {
					var ns, run, most float64
					for b.Loop() {
						ns, run = m.load(b)
						most, _ = busiest(first(m, b))
					}
					alone := m
					alone.workers, alone.lanes = 1, 0
					one, _ := alone.load(b)
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(one/ns, "times")
					b.ReportMetric(most*float64(workers), "busiest")
					b.ReportMetric(run, "pkts/send")
				})
			}
		}
	}
}
