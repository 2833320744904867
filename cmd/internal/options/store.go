package options

import (
	"errors"
	"flag"
	"log/slog"
	"net/netip"

	"weft/lease/etcd"
	"weft/lease/etcd/embedded"
)

// Etcd returns the configuration of the store's client. The caller still has to
// check it, which reads the files that it names.
func (s Store) Etcd(log *slog.Logger) etcd.Config {
	return etcd.Config{
		Endpoints: s.Endpoints, Prefix: s.Prefix,
		CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile,
		Username: s.Username, Password: s.Password, PasswordFile: s.PasswordFile,
		Logger: log,
	}
}

// StoreClient returns what Store.Etcd does, with the embedded server as its endpoint
// if that is on and no endpoints were given.
func (c Config) StoreClient(log *slog.Logger) etcd.Config {
	e := c.Store.Etcd(log)
	if c.UsesEmbedded() {
		e.Endpoints = []string{c.embeddedEndpoint()}
	}
	return e
}

// EmbeddedServer returns the configuration of the etcd server that the daemon starts.
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

// embeddedEndpoint returns the endpoint by which this host reaches that server.
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
	// values holds those to which they are bound.
	values Config
}

// NewStoreFlags returns the flags with the daemon's defaults.
func NewStoreFlags() *StoreFlags {
	f := &StoreFlags{Set: flag.NewFlagSet("store", flag.ContinueOnError), values: defaults()}
	define(f.Set, etcdFlags(&f.values))
	return f
}

// Store returns the values of the command line; given says which flags it has, and
// environ supplies the others. The values are checked. The error joins every fault.
func (f *StoreFlags) Store(given func(name string) bool, environ []string) (Store, error) {
	sources := map[string]string{}
	f.Set.VisitAll(func(g *flag.Flag) {
		if given(g.Name) {
			sources[g.Name] = "flag"
		}
	})
	s := &f.values.Store
	faults := fromEnvironment(f.Set, environment(environ), sources)
	faults = append(faults, s.validate()...)
	return *s, errors.Join(faults...)
}
