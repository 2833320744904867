package kube

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// Reload applies the URL, kubeconfig or service account of cfg, whose files it reads again. It asks for our
// Node that way before it replaces the connection in use. If only the old one works, nothing changes, and the
// error has the reason. If cfg and its files are in use already, changed is false, and Reload makes no
// connection. Our Node and the annotations' prefix stay. A token file needs no Reload, because it is read
// once a minute. Requests that run end, and are made again.
func (c *Client) Reload(ctx context.Context, cfg Config) (changed bool, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := cfg.Check(); err != nil {
		return false, err
	}
	loaded, err := cfg.load()
	if err != nil {
		return false, err
	}
	before := c.conn.Load()
	if before.read == contents(loaded, cfg) {
		return false, nil
	}
	next, err := newConn(loaded, cfg)
	if err != nil {
		return false, err
	}
	err = c.try(ctx, next)
	stays := err != nil && c.try(ctx, before) == nil
	if ctx.Err() != nil { // nothing is known of either
		stays, err = true, context.Cause(ctx)
	}
	if stays {
		next.hangUp()
		return false, fmt.Errorf("%w; the connection in use stays", err)
	}
	if !c.conn.CompareAndSwap(before, next) {
		next.hangUp()
		return false, errors.New("another reload is under way")
	}
	before.hangUp()
	return true, nil
}

// try asks for our Node by w, if it is known which that is.
func (c *Client) try(ctx context.Context, w *conn) error {
	c.mu.Lock()
	name := c.name
	c.mu.Unlock()
	if name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout/2)
	defer cancel()
	if err := readNode(ctx, w.api, name, "0", new(corev1.Node)); err != nil {
		return fmt.Errorf("the API server %s: %w", w.host, err)
	}
	return nil
}

// Files returns the files by which the API server is reached, as far as they can be found now. Certificates
// of them are PEM files whose dates count.
func (c Config) Files() (certificates, others []string) {
	named := func(l ...string) []string {
		return slices.DeleteFunc(l, func(s string) bool { return s == "" })
	}
	loaded, err := c.load()
	if err != nil {
		return nil, named(c.Kubeconfig)
	}
	return named(loaded.CertFile, loaded.CAFile), named(c.Kubeconfig, loaded.KeyFile, loaded.BearerTokenFile)
}

// contents is a digest of what c says and its files hold, but for the token's, which is replaced every hour
// and read by itself.
func contents(loaded *rest.Config, c Config) [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q ", c.APIURL, c.Kubeconfig, loaded.Host)
	for _, f := range []string{c.Kubeconfig, loaded.CertFile, loaded.KeyFile, loaded.CAFile} {
		b, _ := os.ReadFile(f) // load, or the first connection, says what is wrong with it
		fmt.Fprintf(h, "%q %q ", f, b)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
