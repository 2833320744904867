package doctor

import (
	"context"
	"time"

	"weft/cmd/internal/control"
	"weft/tunnel/port"
)

// malformedWatch is how long the peers' packets are watched: what a path cannot read, it drops as long as it
// comes.
const malformedWatch = 500 * time.Millisecond

// watchMalformed asks weftd once more what it dropped of each peer's packets.
func watchMalformed(ctx context.Context, d Daemon, socket string) map[string]uint64 {
	if !d.answers() {
		return nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(malformedWatch):
	}
	later, err := control.NewClient(socket).Peers(ctx)
	if err != nil {
		return nil // that it does not answer is another check's
	}
	return malformedSince(d.Peers, later)
}

// malformedSince is how many packets of each peer were dropped as malformed between two answers.
func malformedSince(before, after control.Peers) map[string]uint64 {
	was := map[string]uint64{}
	for _, p := range before.Peers {
		was[p.Name] += malformed(p)
	}
	rises := map[string]uint64{}
	for _, p := range after.Peers {
		rises[p.Name] += malformed(p)
	}
	for name, n := range rises {
		if rises[name] = n - was[name]; n <= was[name] { // the peer is as it was, or was taken up anew
			delete(rises, name)
		}
	}
	return rises
}

func malformed(p control.Peer) (n uint64) {
	for _, d := range p.Drops {
		if d.Reason == port.DropMalformed.String() {
			n += d.Packets
		}
	}
	return n
}

// checkPeerPackets looks whether what comes from peers that are there can be read. A peer that answers sends
// what its own data plane made, so that the fault is on the way, or in how it is received here.
func checkPeerPackets(f *Facts) []Finding {
	if !f.Daemon.answers() {
		return one(Unknown, "weftd, which counts them, does not answer")
	}
	var out []Finding
	for _, p := range f.Daemon.Peers.Peers {
		if n := f.Daemon.Malformed[p.Name]; n > 0 {
			out = append(out, says(Fault, "%d of its packets were dropped as malformed while this looked",
				n).about(p.Name).
				because("a device on the way, or the kernel here, changes or joins datagrams such that path %s cannot "+
					"read them", f.Daemon.Status.Backend.Path).
				do("weft capture shows them; \"Path\":\"portable\" in Backend of the network configuration takes "+
					"datagrams one by one; weft report has what a report of this fault needs"))
		}
	}
	return orOK(out, "none is dropped as malformed")
}
