package control

// Rules is the state of the host's firewall rules, which say what is masqueraded, what is forwarded, and who
// may send to the overlay's port.
type Rules struct {
	// Firewall says where they are: nftables, or iptables with its flavour; empty before there are any.
	Firewall string `json:"firewall,omitempty"`
	// InPlace says that they are as wanted; if not, Error says what is wrong.
	InPlace bool   `json:"inPlace"`
	Error   string `json:"error,omitempty"`
	// Repaired counts how often they were restored after somebody else had changed them.
	Repaired uint64 `json:"repaired"`
	// PodsDropped counts dropped packets that pods sent to the overlay's port, StrangersDropped those
	// that came to the kernel's vxlan from an address that is no peer's.
	PodsDropped      uint64 `json:"podsDropped"`
	StrangersDropped uint64 `json:"strangersDropped"`
	// PlainDropped counts packets that came, or would have left, in plain where Backend.Encrypt forbids it.
	PlainDropped uint64 `json:"plainDropped,omitempty"`
	// Notes say which settings of the host keep packets from passing, and the remedy.
	Notes []string `json:"notes,omitempty"`
}
