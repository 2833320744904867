package etcd

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"weft/lease/redact"
)

// DefaultPrefix is flannel's root of keys.
const DefaultPrefix = "/coreos.com/network"

// Config says where etcd is and how to talk to it. It can be printed: the
// password is a Secret.
type Config struct {
	// Endpoints are URLs; a bare host:port is https if any TLS file is named, else
	// http. All have one scheme. Empty means flannel's default: ports 4001 and 2379 of
	// 127.0.0.1.
	Endpoints []string
	// Prefix is the root of our keys; it is cleaned as by path.Clean. Empty means DefaultPrefix.
	Prefix string
	// CAFile holds the certificates that the server is checked against; empty means
	// the system's. It is read again at each handshake, too.
	CAFile string
	// CertFile and KeyFile identify us. Both or none; they are read again at each
	// handshake, so that they can be renewed in place.
	CertFile, KeyFile string
	// Username turns authentication on. Password, else the first line of
	// PasswordFile, goes with it.
	Username     string
	Password     Secret
	PasswordFile string
	// Logger receives what etcd's client says, at debug level. Nil discards it.
	Logger *slog.Logger

	// RequestTimeout bounds one request, with the connection and the login that it waits for. Zero means 10 s.
	RequestTimeout time.Duration
	// PingEvery is how long a watch is silent before etcd is asked for a sign of
	// life, and PingTimeout how long that may take. Zero means 5 s and 7 s.
	PingEvery, PingTimeout time.Duration
	// RelistEvery is the time between full reads under a watch, less up to a fifth.
	// Zero means 5 min.
	RelistEvery time.Duration
}

// resolved is a Config that was checked, with its files read.
type resolved struct {
	Config
	tls      *tls.Config // nil without TLS files
	warnings []string
	read     [sha256.Size]byte // digest of the files' contents
}

// Check reports everything that is wrong with c, and as warnings what is allowed
// and probably not meant. It reads the files that c names and changes nothing.
func (c Config) Check() (warnings []string, err error) {
	r, err := c.resolve()
	return r.warnings, err
}

// Access returns the endpoints of c as URLs, and the TLS configuration with which they are asked; nil for
// that of the system. It reads the files that c names.
func (c Config) Access() (endpoints []string, config *tls.Config) {
	r, _ := c.resolve() // Check has what is wrong
	return r.Endpoints, r.tls
}

// Doubt returns the reason for which others may have written what we read from etcd; "" if both etcd and we
// prove our identity, so that etcd can keep others from writing. Whether it does is up to its operator. Doubt
// reads the files that c names. ours returns an error if users other than root and ours may change the target
// of a path.
func (c Config) Doubt(ours func(path string) (real string, err error)) string {
	r, err := c.resolve()
	if err != nil {
		return err.Error()
	}
	for _, e := range r.Endpoints {
		scheme, path, _ := strings.Cut(e, "://")
		switch scheme {
		case "unix":
			if _, err := ours(path); err != nil {
				return err.Error()
			}
		case "https", "unixs":
			if r.CertFile == "" && r.Username == "" {
				return fmt.Sprintf("%s asks neither for a client certificate nor for a login that we could give", e)
			}
		default:
			return fmt.Sprintf("%s is not TLS: nobody can tell who answers or writes there", e)
		}
	}
	return ""
}

func (c Config) resolve() (resolved, error) {
	r := resolved{Config: c, read: c.contents()}
	r.Endpoints = slices.Clone(c.Endpoints)
	if len(r.Endpoints) == 0 {
		r.Endpoints = []string{"http://127.0.0.1:4001", "http://127.0.0.1:2379"}
	}
	r.Prefix = path.Clean(cmp.Or(c.Prefix, DefaultPrefix))
	r.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	r.PingEvery = cmp.Or(c.PingEvery, 5*time.Second)
	r.PingTimeout = cmp.Or(c.PingTimeout, 7*time.Second)
	r.RelistEvery = cmp.Or(c.RelistEvery, 5*time.Minute)
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	return r, errors.Join(r.resolvePrefix(), r.resolveTLS(), r.resolveEndpoints(), r.resolveLogin())
}

func (r *resolved) resolvePrefix() error {
	if r.Prefix == "." || r.Prefix == "/" {
		return fmt.Errorf("etcd prefix %q: it must name a folder of keys, such as %s", r.Config.Prefix,
			DefaultPrefix)
	}
	return nil
}

func (r *resolved) resolveEndpoints() error {
	var errs []error
	schemes := map[string]bool{}
	for i, e := range r.Endpoints {
		if !strings.Contains(e, "://") {
			e = map[bool]string{true: "https://", false: "http://"}[r.tls != nil] + e
		}
		u, err := url.Parse(e)
		switch {
		case err != nil || u.Host == "" && u.Path == "":
			errs = append(errs, fmt.Errorf("etcd endpoint %d: not a URL such as https://192.0.2.1:2379", i+1))
			continue
		case u.User != nil: // not quoted: it may hold a password
			errs = append(errs, fmt.Errorf("etcd endpoint %d: user and password do not belong in the URL", i+1))
			continue
		case !slices.Contains([]string{"http", "https", "unix", "unixs"}, u.Scheme):
			errs = append(errs, fmt.Errorf("etcd endpoint %q: the scheme is not http or https", redact.URL(e)))
		}
		schemes[u.Scheme] = true
		r.Endpoints[i] = e
	}
	if len(schemes) > 1 {
		errs = append(errs, errors.New("etcd endpoints: all must be http or all https"))
	}
	if schemes["http"] && r.tls != nil {
		r.warnings = append(r.warnings, "etcd endpoints are http: the CA, certificate and key files are not used")
	}
	if schemes["http"] && r.Username != "" {
		r.warnings = append(r.warnings, "etcd endpoints are http: the etcd password crosses the network in clear")
	}
	return errors.Join(errs...)
}

func (r *resolved) resolveLogin() error {
	if r.Password.text == nil && r.PasswordFile != "" {
		info, err := os.Stat(r.PasswordFile)
		if err != nil {
			return fmt.Errorf("etcd password file: %w", err)
		}
		if perm := info.Mode().Perm(); perm&0o077 != 0 {
			r.warnings = append(r.warnings, fmt.Sprintf("etcd password file %s has mode %04o: others than its owner "+
				"can use it; 0600 is right", r.PasswordFile, perm))
		}
		b, err := os.ReadFile(r.PasswordFile)
		if err != nil {
			return fmt.Errorf("etcd password file: %w", err)
		}
		line, _, _ := strings.Cut(string(b), "\n")
		if r.Password = NewSecret(strings.TrimSuffix(line, "\r")); r.Password.text == nil {
			return fmt.Errorf("etcd password file %s: the first line is empty", r.PasswordFile)
		}
	}
	// flannel ignores one without the other.
	if (r.Username == "") != (r.Password.text == nil) {
		r.warnings = append(r.warnings, "etcd user name and password: one is given without the other, so there "+
			"is no login")
		r.Username, r.Password = "", Secret{}
	}
	return nil
}
