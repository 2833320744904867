package control

// Rules are the host's traffic rules: what is masqueraded, what is forwarded, and who may speak on the
// overlay's port.
type Rules struct {
	// Firewall is where they are: nftables, or iptables with its flavour; empty before there are any.
	Firewall string `json:"firewall,omitempty"`
	// InPlace says that they are as wanted, and Error what is not.
	InPlace bool   `json:"inPlace"`
	Error   string `json:"error,omitempty"`
	// Repaired counts how often they were put back after somebody else changed them.
	Repaired uint64 `json:"repaired"`
	// PodsDropped are packets that pods sent to the overlay's port; StrangersDropped came to the
	// kernel's vxlan from an address that is no peer's.
	PodsDropped      uint64 `json:"podsDropped"`
	StrangersDropped uint64 `json:"strangersDropped"`
	// Notes say what of the host keeps packets from passing, and the remedy.
	Notes []string `json:"notes,omitempty"`
}
