package port

// Recv is a set of capabilities of a receiver, on every path. Without any it accepts datagrams with one
// complete inner packet.
type Recv uint8

// The capabilities, and their names in lease records.
const (
	RecvGSO   Recv = 1 << iota // "gso": an inner superpacket in one datagram
	RecvPCsum                  // "pcsum": a partial inner checksum
	RecvPack                   // "pack": several inner packets in one datagram
	RecvProbe                  // "probe": answers probes of the path
	RecvRuns                   // "runs": answers probes that ask whether they arrived intact
)

// Supported is the set of capabilities of this build, for its own lease record.
const Supported = RecvGSO | RecvPCsum | RecvPack | RecvProbe | RecvRuns

var recvNames = [...]struct {
	bit  Recv
	name string
}{{RecvGSO, "gso"}, {RecvPCsum, "pcsum"}, {RecvPack, "pack"}, {RecvProbe, "probe"}, {RecvRuns, "runs"}}

// ParseRecv parses the names of a lease record. It skips unknown names, because a newer node may publish
// them.
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
