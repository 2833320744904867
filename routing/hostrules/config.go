package hostrules

import (
	"log/slog"
	"net/netip"
	"time"

	"weft/lease"
)

// Config is what determines the rules, beside the leases.
type Config struct {
	// Network says which families there are, and whether nftables is used (EnableNFTables).
	Network lease.NetworkConfig
	// Masquerade is --ip-masq; RandomFully draws its source ports at random, where iptables can.
	Masquerade, RandomFully bool
	// Forward accepts forwarded packets from and to the overlay: --iptables-forward-rules.
	Forward bool
	// Former are networks that this node was in before: their rules are ours too.
	Former []netip.Prefix
	// Blackhole keeps a blackhole route for the node's own subnet: --ip-blackhole-route.
	Blackhole bool
	// NoMasquerade are destinations that are never masqueraded, masked and sorted.
	NoMasquerade []netip.Prefix
	// RouteProtocol marks our routes in the kernel.
	RouteProtocol int
	// Resync is the time between checks that need no notification; at least a second, default 5 s.
	Resync time.Duration
	// Guard says what the overlay's port needs, until Protect says otherwise.
	Guard Guard
	seal  *Seal // Rules.Seal
	// Logger gets what is changed and what cannot be; required.
	Logger *slog.Logger
}

// defaultResync is flannel's.
const defaultResync = 5 * time.Second
