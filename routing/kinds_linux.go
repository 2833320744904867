package routing

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"

	"weft/lease"
)

// BackendConfig is what any backend is made of.
type BackendConfig struct {
	// Kernel is the namespace to work in. It is borrowed until Run or Close returns.
	Kernel *Kernel
	// Network is the network config; its Backend object is the backend's.
	Network lease.NetworkConfig
	// Node is this node's identity: what the backend invents for it is derived from that,
	// and so the same after a reboot.
	Node string
	// StateDir is a directory that outlives the process; "" for none.
	StateDir string
	// Workers is how many workers a data plane of our own has; 0 means tunnel.DefaultWorkers.
	Workers int
	// Former are networks that this node was in before: what it had there is taken away.
	Former []netip.Prefix
	// Underlay is what ChooseUnderlay chose with UnderlayOptions.
	Underlay        Underlay
	UnderlayOptions UnderlayOptions
	// UnderlayChanged, if not nil, is called with the new state when the underlay's
	// addresses or MTU changed, so that the lease record can follow. It must not block,
	// nor call Apply.
	UnderlayChanged func(Underlay)
	// MayRunCommands says why this node does not run commands that the network config names, as type
	// extension has it; nil runs them. If it is nil itself, none is run.
	MayRunCommands func() error
	// Logger; nil discards.
	Logger *slog.Logger
}

// kind is a type of backend. This table is the one place that knows which there are.
type kind struct {
	name string
	// check finds the faults in the backend's keys: a *lease.ConfigError each, joined.
	check func(lease.NetworkConfig) error
	// open makes the backend as Backend describes it.
	open func(context.Context, BackendConfig) (Backend, error)
}

func kinds() []kind {
	return []kind{
		{typeUDP, func(c lease.NetworkConfig) error { _, err := ParseUDPConfig(c); return err }, openUDP},
		{typeVXLAN, func(c lease.NetworkConfig) error { _, err := parseVXLAN(c); return err }, openVXLAN},
		{typeAuto, func(c lease.NetworkConfig) error { _, err := parseVXLAN(c); return err }, openVXLAN},
		{typeHostGW, func(c lease.NetworkConfig) error { _, err := parseHostGW(c); return err }, openHostGW},
		{typeAlloc, func(c lease.NetworkConfig) error { _, err := parseAlloc(c); return err }, openAlloc},
		{typeExtension, func(c lease.NetworkConfig) error { _, err := parseExtension(c); return err }, openExtension},
	}
}

// findKind looks a type up; the error says which there are.
func findKind(name string) (kind, error) {
	var names []string
	for _, k := range kinds() {
		if k.name == name {
			return k, nil
		}
		names = append(names, k.name)
	}
	return kind{}, &lease.ConfigError{Key: "Backend.Type", Got: fmt.Sprintf("%q", name), Want: fmt.Sprintf("one of %q", names)}
}

// Port is the UDP port that the backend of c uses on every node; 0 if it uses none.
func Port(c lease.NetworkConfig) uint16 {
	switch c.BackendType {
	case typeUDP:
		if o, err := ParseUDPConfig(c); err == nil {
			return o.Port
		}
	case typeVXLAN, typeAuto:
		if o, err := parseVXLAN(c); err == nil {
			return o.Port
		}
	}
	return 0
}

// NeedsTUN reports whether the backend of c moves packets itself, whatever the kernel can do.
func NeedsTUN(c lease.NetworkConfig) bool {
	if c.BackendType == typeVXLAN || c.BackendType == typeAuto {
		o, err := parseVXLAN(c)
		return err == nil && o.Userspace == "always"
	}
	return c.BackendType == typeUDP
}

// MayNeedTUN reports whether the backend of c moves packets itself where the kernel cannot, which
// ProbeVXLANAside finds out.
func MayNeedTUN(c lease.NetworkConfig) bool {
	if c.BackendType == typeVXLAN || c.BackendType == typeAuto {
		o, err := parseVXLAN(c)
		return err == nil && o.Userspace == "auto"
	}
	return false
}

// NewBackend makes the backend that c.Network names. It starts nothing that runs on; the
// caller runs Run or calls Close. ctx bounds what has to be done before there is a lease. The error joins a *lease.ConfigError for each fault in the
// network config.
func NewBackend(ctx context.Context, c BackendConfig) (Backend, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	k, err := findKind(c.Network.BackendType)
	if err != nil {
		return nil, err
	}
	return k.open(ctx, c)
}

func openUDP(_ context.Context, c BackendConfig) (Backend, error) {
	o, err := ParseUDPConfig(c.Network)
	if err != nil {
		return nil, err
	}
	u, err := NewUDP(UDPConfig{
		Kernel: c.Kernel, Network: c.Network, Options: o, Workers: c.Workers, Former: c.Former,
		Underlay: c.Underlay, UnderlayOptions: c.UnderlayOptions, UnderlayChanged: c.UnderlayChanged,
		Logger: c.Logger,
	})
	if err != nil {
		return nil, err // and no *UDP in the interface
	}
	return u, nil
}
