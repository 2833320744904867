package hostrules

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
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
	// NoMasquerade are destinations that are never masqueraded, masked; see ParseNoMasquerade.
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

func (c Config) check() (Config, error) {
	if c.Resync == 0 {
		c.Resync = defaultResync
	}
	c.Resync = max(c.Resync, time.Second)
	if c.Logger == nil {
		return c, errors.New("hostrules: no logger")
	}
	return c, nil
}

// ParseNoMasquerade reads the key Backend.NoMasquerade of a network config: a list of
// networks, such as ["192.0.2.0/24"], to which packets go with the sender's own address
// although --ip-masq is on. The key is one of Backend because flannel ignores unknown keys
// there. The result is masked and sorted; the error is a *lease.ConfigError.
func ParseNoMasquerade(c lease.NetworkConfig) ([]netip.Prefix, error) {
	if len(c.Backend) == 0 {
		return nil, nil
	}
	var raw struct{ NoMasquerade json.RawMessage }
	if err := json.Unmarshal(c.Backend, &raw); err != nil {
		return nil, nil // no object: that fault is the backend's to report
	}
	if len(raw.NoMasquerade) == 0 {
		return nil, nil
	}
	fault := func(err error) error {
		return &lease.ConfigError{Key: "Backend.NoMasquerade", Got: string(raw.NoMasquerade),
			Want: `a list of networks as ["192.0.2.0/24"]: ` + err.Error()}
	}
	var words []string
	if err := json.Unmarshal(raw.NoMasquerade, &words); err != nil {
		return nil, fault(errors.New("it is no list of strings"))
	}
	var ps []netip.Prefix
	var faults []error
	for _, w := range words {
		p, err := netip.ParsePrefix(w)
		if err != nil || p.Addr().Is4In6() {
			faults = append(faults, fmt.Errorf("%q is no network", w))
			continue
		}
		ps = append(ps, p.Masked())
	}
	if len(faults) > 0 {
		return nil, fault(errors.Join(faults...))
	}
	slices.SortFunc(ps, func(a, b netip.Prefix) int {
		if d := a.Addr().Compare(b.Addr()); d != 0 {
			return d
		}
		return a.Bits() - b.Bits()
	})
	return slices.Compact(ps), nil
}
