package custody

import "time"

// Report says what a holder keeps.
type Report struct {
	PID int `json:"pid"`
	// Owner names the state directory of the weftd that the descriptors are kept for.
	Owner string `json:"owner"`
	// Items and Descriptors are how many there are, the index not counted.
	Items       int `json:"items"`
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
