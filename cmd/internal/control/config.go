package control

// Config has the network configuration in use, and says how the one in the store or in the file differs.
type Config struct {
	// InUse is the text of the configuration that is in effect.
	InUse string `json:"inUse,omitempty"`
	// Differs says that the store has another one, or none; Other is its text, shortened.
	Differs bool   `json:"differs"`
	Other   string `json:"other,omitempty"`
	// Faults say why Other cannot be used, by key and value.
	Faults []string `json:"faults,omitempty"`
	// LastGood says that weftd could not use Other when it started. The node runs on its last good
	// configuration, and adopts a good one as soon as there is one.
	LastGood bool `json:"lastGood,omitempty"`
	// Changes are what a restart would change.
	Changes []string `json:"changes,omitempty"`
	// Unknown are keys that nobody reads, each with the key that was most likely meant.
	Unknown []string `json:"unknown,omitempty"`
}
