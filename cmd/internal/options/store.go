package options

import (
	"errors"
	"flag"
	"log/slog"
	"net/netip"

	"weft/lease/etcd"
	"weft/lease/etcd/embedded"
)

// Etcd is the configuration of the store's client. It still has to be checked,
// which reads the files that it names.
func (s Store) Etcd(log *slog.Logger) etcd.Config {
	return etcd.Config{
		Endpoints: s.Endpoints, Prefix: s.Prefix,
		CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile,
		Username: s.Username, Password: s.Password, PasswordFile: s.PasswordFile,
		Logger: log,
	}
}

// StoreClient is Store.Etcd, which turns to the embedded server unless endpoints
// were named.
func (c Config) StoreClient(log *slog.Logger) etcd.Config {
	e := c.Store.Etcd(log)
	if c.UsesEmbedded() {
		e.Endpoints = []string{c.embeddedEndpoint()}
	}
	return e
}

// EmbeddedServer is the configuration of the etcd server inside the daemon.
func (c Config) EmbeddedServer(log *slog.Logger) embedded.Config {
	e := embedded.Config{
		Dir: c.Embedded.Dir, Insecure: c.Embedded.Insecure,
		CertFile: c.Store.CertFile, KeyFile: c.Store.KeyFile, CAFile: c.Store.CAFile,
		Logger: log,
	}
	if c.Embedded.Listen.IsValid() {
		e.Listen = c.Embedded.Listen.String()
	}
	return e
}

// UsesEmbedded reports whether the store is the embedded server.
func (c Config) UsesEmbedded() bool { return c.Embedded.On && !c.endpointsGiven }

// embeddedEndpoint is how this host reaches the server.
func (c Config) embeddedEndpoint() string {
	scheme, listen := "http://", c.Embedded.Listen
	if !listen.IsValid() {
		return c.EmbeddedServer(nil).Endpoint()
	}
	if c.Store.CertFile != "" {
		scheme = "https://"
	}
	switch listen.Addr() {
	case netip.IPv4Unspecified():
		listen = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), listen.Port())
	case netip.IPv6Unspecified():
		listen = netip.AddrPortFrom(netip.IPv6Loopback(), listen.Port())
	}
	return scheme + listen.String()
}

// StoreFlags are the daemon's flags about the store, for another command.
type StoreFlags struct {
	// Set holds the flags, to be bound to that command's own.
	Set *flag.FlagSet
	// store is what they are bound to.
	store Store
}

// NewStoreFlags has the daemon's defaults.
func NewStoreFlags() *StoreFlags {
	f := &StoreFlags{Set: flag.NewFlagSet("store", flag.ContinueOnError), store: defaultStore()}
	f.store.define(f.Set)
	f.store.defineOwn(f.Set)
	return f
}

// Store completes what the command line gave, which given tells, from environ,
// and checks it. The error joins every fault.
func (f *StoreFlags) Store(given func(name string) bool, environ []string) (Store, error) {
	sources := map[string]string{}
	f.Set.VisitAll(func(g *flag.Flag) {
		if given(g.Name) {
			sources[g.Name] = "flag"
		}
	})
	s := &f.store
	faults := fromEnvironment(f.Set, ownFlags(), environment(environ), sources)
	faults = append(faults, s.validate()...)
	return *s, errors.Join(faults...)
}
