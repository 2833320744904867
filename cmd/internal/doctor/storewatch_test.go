package doctor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"weft/cmd/internal/events"
	"weft/lease"
)

// The history tells what the log said of the store. Old events are left out, and so are those of other kinds.
func TestStoreLostIsOfTheHistory(t *testing.T) {
	dir := t.TempDir()
	var text []byte
	for age, kind := range map[time.Duration]events.Kind{time.Hour: events.Kind(lease.EventStoreLost),
		-time.Hour:  events.Kind(lease.EventStoreLost), // by a clock that was ahead
		time.Minute: events.Kind(lease.EventStoreLost), time.Second: events.Kind(lease.EventStoreBack)} {
		b, err := json.Marshal(events.Event{Time: at().Add(-age), Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, b...), '\n')
	}
	if err := os.WriteFile(filepath.Join(dir, events.File), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := storeLost(dir, at()); len(got) != 1 || !got[0].Time.Equal(at().Add(-time.Minute)) {
		t.Errorf("got %v", got)
	}
	if got := storeLost(t.TempDir(), at()); len(got) != 0 {
		t.Errorf("without a history: %v", got)
	}
}
