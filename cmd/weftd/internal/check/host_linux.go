package check

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/options"
	"weft/lease"
	"weft/routing"
	"weft/routing/presence"
	"weft/routing/underlay"
)

// capabilities reads those in effect, as a set of bits.
func capabilities() (uint64, error) {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		return 0, fmt.Errorf("capget: %w", err)
	}
	return uint64(d[1].Effective)<<32 | uint64(d[0].Effective), nil
}

// privileges checks the capabilities that every backend needs.
func (r *report) privileges(have uint64) {
	has := func(c uint) bool { return have&(1<<c) != 0 }
	if !has(unix.CAP_NET_ADMIN) {
		r.fault(errors.New("CAP_NET_ADMIN is missing: devices, addresses, routes and rules need it; run as root, or give it to the unit or the container"))
	}
	if !has(unix.CAP_NET_RAW) {
		r.remark("CAP_NET_RAW is missing: path raw is not possible, path auto takes the next best")
	}
}

// published checks whether anybody could send to the addresses that weftd would publish.
func (r *report) published(cfg options.Config) {
	for flag, a := range map[string]netip.Addr{"--public-ip": cfg.Underlay.PublicIP, "--public-ipv6": cfg.Underlay.PublicIPv6} {
		if a.IsValid() && (a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast()) {
			r.fault(fmt.Errorf("%s %s: no other host can send to it, and peers would not believe the record: want an address at which they reach this host", flag, a))
		}
	}
}

// backend checks whether the backend of network would start over u, which is in the namespace of k.
func (r *report) backend(cfg options.Config, network lease.NetworkConfig, k *routing.Kernel, u underlay.Link) {
	if network.BackendType == "" {
		return // it is not known
	}
	if mtu, err := routing.OverlayMTU(network, u); err != nil {
		r.fault(err)
	} else {
		r.remark("backend %s: MTU %d inside the overlay", network.BackendType, mtu)
	}
	facts := routing.FactsOf(network)
	if err := presence.PortFree(k, u, facts.Port, facts.Port6); errors.Is(err, unix.EACCES) { // a weftd that runs has the port
		r.fault(fmt.Errorf("network config: %w", err))
	}
	if facts.Controller && cfg.Hook.URL == "" {
		r.fault(routing.ErrNoController)
	}
	for _, c := range facts.Commands {
		words := strings.Fields(c.Command)
		if len(words) == 0 || strings.Contains(words[0], "$") {
			continue
		}
		if _, err := exec.LookPath(words[0]); err != nil {
			r.fault(fmt.Errorf("network config: Backend.%s: %w", c.Key, err))
		}
	}
}
