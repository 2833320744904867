package custody

import (
	"encoding/json"
	"fmt"
	"time"
)

// Report says what a holder keeps.
type Report struct {
	PID int `json:"pid"`
	// Owner names the state directory of the weftd that the descriptors are kept for.
	Owner string `json:"owner"`
	// Items and Descriptors are how many there are, and Room how many descriptors more it can have.
	Items       int `json:"items"`
	Descriptors int `json:"descriptors"`
	Room        int `json:"room"`
	// Away is how long there has been no weftd, in milliseconds: before this one came, if that asks. Left is after how many
	// more milliseconds the holder ends if none comes; 0 while there is one.
	Away int64 `json:"awayMilliseconds"`
	Left int64 `json:"leftMilliseconds"`
}

// AwayFor returns Away as a duration.
func (r Report) AwayFor() time.Duration { return time.Duration(r.Away) * time.Millisecond }

// LeftFor returns Left as a duration.
func (r Report) LeftFor() time.Duration { return time.Duration(r.Left) * time.Millisecond }

func (r Report) append() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // a struct of numbers and one string has a form in JSON
	}
	return b
}

func parseReport(b []byte) (r Report, err error) {
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("the holder's report: %w", err)
	}
	return r, nil
}
