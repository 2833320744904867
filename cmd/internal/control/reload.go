package control

import (
	"context"
	"fmt"
	"net/http"
)

// Reloaded is what a reload did.
type Reloaded struct {
	// Changed is in force now, and was not before.
	Changed []ReloadChange `json:"changed"`
	// Restart has changed, and is not in force before a restart.
	Restart []ReloadChange `json:"restart"`
	// Faults say what could not be used. The old value stays in use.
	Faults []string `json:"faults"`
	// Notes say what else there is to know, such as which network configuration is in use.
	Notes []string `json:"notes"`
	// Revision is that of the store at which its network configuration was read: what was written up to it
	// was seen. It is 0 if nothing was read in a store.
	Revision int64 `json:"revision,omitempty"`
}

// ReloadChange is something that has changed.
type ReloadChange struct {
	// Key is a flag with its dashes, or "credentials" for the files by which the store is reached, or "network
	// configuration".
	Key string `json:"key"`
	// From and To are the values of a flag. That of a secret is "set", and shows no change.
	From string `json:"from"`
	To   string `json:"to"`
	// Detail says more.
	Detail string `json:"detail,omitempty"`
}

// Text is the change as a sentence's beginning.
func (c ReloadChange) Text() string {
	switch {
	case c.From == c.To:
		return c.Key + " changed"
	case c.From == "":
		return fmt.Sprintf("%s is now %s, and was not set", c.Key, c.To)
	case c.To == "":
		return fmt.Sprintf("%s is not set any more, and was %s", c.Key, c.From)
	}
	return fmt.Sprintf("%s changed from %s to %s", c.Key, c.From, c.To)
}

// Complete reports whether all that has changed is in force.
func (r Reloaded) Complete() bool { return len(r.Restart)+len(r.Faults) == 0 }

// Reload has the daemon read its settings again, and waits until what can be changed is in force, some
// seconds at the most.
func (c *Client) Reload(ctx context.Context) (r Reloaded, err error) {
	return r, c.Do(ctx, http.MethodPost, "/v1/reload", nil, &r)
}
