// Package trust decides whether a node may run the commands in its network configuration.
package trust

import (
	"fmt"
	"log/slog"

	"weft/cmd/internal/options"
	"weft/cmd/internal/safepath"
)

// remedy says what to do about a source to which anyone may write.
const remedy = "have etcd ask for client certificates, or for a login by TLS; or, if everyone who can " +
	"write there may be root on this node, give --allow-extension"

// Commands returns nil if weftd may run them: only somebody who may be root on this host can have written the
// network configuration, or the operator has allowed it. Else the error says why not, and what to do.
func Commands(cfg options.Config) error {
	switch {
	case cfg.AllowExtension:
		return nil
	case cfg.Kube.On:
		return file(cfg.NetConfigPath)
	}
	why := Doubt(cfg)
	if why == "" {
		return nil
	}
	return fmt.Errorf("whoever writes them to the store is root here, and %s; %s", why, remedy)
}

// Doubt says why anyone may be able to write to the store; "" if there is no reason to think so.
func Doubt(cfg options.Config) string {
	if listen := cfg.Embedded.Listen; cfg.UsesEmbedded() && cfg.Store.Username == "" {
		switch {
		case !listen.IsValid():
			return "" // a socket for root alone
		case cfg.Store.CertFile == "" || cfg.Store.CAFile == "":
			return fmt.Sprintf("the embedded etcd on %s asks nobody for a certificate", listen)
		}
		return "" // the server, ours, demands them
	}
	return cfg.StoreClient(slog.New(slog.DiscardHandler)).Doubt(safepath.Check)
}

// file returns nil if nobody but root and this process's user can change the file called name, or
// put another in its place.
func file(name string) error {
	if _, err := safepath.Check(name); err != nil {
		return fmt.Errorf("whoever writes them to %s is root here: %w, or give --allow-extension", name, err)
	}
	return nil
}
