package control

// Config is the network configuration in use, and how the store's, or the file's, differs.
type Config struct {
	// InUse is the text of the one that packets go by.
	InUse string `json:"inUse,omitempty"`
	// Differs says that the store has another one, or none; Other is its text, shortened.
	Differs bool   `json:"differs"`
	Other   string `json:"other,omitempty"`
	// Faults say why Other cannot be used, by key and value.
	Faults []string `json:"faults,omitempty"`
	// LastGood says that the start wanted to use Other and could not: the node runs on its last
	// good configuration, and takes up a good one by itself.
	LastGood bool `json:"lastGood,omitempty"`
	// Changes are what a restart would change.
	Changes []string `json:"changes,omitempty"`
	// Unknown are keys that nobody reads, with what was most likely meant.
	Unknown []string `json:"unknown,omitempty"`
}
