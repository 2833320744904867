package custody

import "time"

// Report says what a holder keeps.
type Report struct {
	PID int `json:"pid"`
	// Owner names the state directory of the weftd that the descriptors are kept for.
	Owner string `json:"owner"`
	// Descriptors is how many there are, the index not counted.
	Descriptors int `json:"descriptors"`
	// Away is for how many milliseconds there has been no weftd; 0 while there is one. Left is after how many
	// more milliseconds the holder ends if none comes.
	Away int64 `json:"awayMilliseconds"`
	Left int64 `json:"leftMilliseconds"`
}

// AwayFor returns Away as a duration.
func (r Report) AwayFor() time.Duration { return time.Duration(r.Away) * time.Millisecond }

// LeftFor returns Left as a duration.
func (r Report) LeftFor() time.Duration { return time.Duration(r.Left) * time.Millisecond }

// Keepers of descriptors, as in Status.
const (
	ByManager = "service manager"
	ByHolder  = "holder"
)

// Status says who keeps descriptors for the next weftd.
type Status struct {
	// By is ByManager, ByHolder, or "" if nobody keeps them. PID is the holder's.
	By  string `json:"by,omitempty"`
	PID int    `json:"pid,omitempty"`
	// Items counts the pods, and Descriptors all of their descriptors.
	Items       int `json:"items"`
	Descriptors int `json:"descriptors"`
	// Ports are those of the data plane that are kept, which are the optional items, and PortDescriptors what is
	// kept of them.
	Ports           int `json:"ports,omitempty"`
	PortDescriptors int `json:"portDescriptors,omitempty"`
	// Discarded is how many packets had waited for too long when they were taken up.
	Discarded int `json:"discardedPackets,omitempty"`
	// Fault says what is not kept and why, or what will end the keeping; "" for nothing.
	Fault string `json:"fault,omitempty"`
}
