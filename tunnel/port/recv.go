package port

// Recv is a set of capabilities: the forms of datagram that a node accepts on every path, beyond one complete
// inner packet.
type Recv uint8

// The forms that a receiver can name in its lease record.
const (
	RecvGSO   Recv = 1 << iota // "gso": an inner superpacket in one datagram
	RecvPCsum                  // "pcsum": a partial inner checksum
	RecvPack                   // "pack": several inner packets in one datagram
	RecvProbe                  // "probe": a probe of the path, which is answered
	RecvRuns                   // "runs": a probe that asks whether it arrives whole, which is answered
)

// Supported is what this build parses on every path, for our own lease record.
const Supported = RecvGSO | RecvPCsum | RecvPack | RecvProbe | RecvRuns

var recvNames = [...]struct {
	bit  Recv
	name string
}{{RecvGSO, "gso"}, {RecvPCsum, "pcsum"}, {RecvPack, "pack"}, {RecvProbe, "probe"}, {RecvRuns, "runs"}}

// ParseRecv turns the names of a lease record into bits. It skips names that this build does not know,
// because a newer node may publish them.
func ParseRecv(names []string) Recv {
	var r Recv
	for _, n := range names {
		for _, k := range recvNames {
			if k.name == n {
				r |= k.bit
			}
		}
	}
	return r
}

// Names returns the names for the lease record.
func (r Recv) Names() []string {
	var names []string
	for _, k := range recvNames {
		if r&k.bit != 0 {
			names = append(names, k.name)
		}
	}
	return names
}
