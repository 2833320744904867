package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"weft/cmd/internal/control"
	"weft/cmd/internal/events"
	"weft/cmd/internal/options"
	"weft/lease"
	"weft/lease/etcd"
	"weft/lease/redact"
)

// endpointPatience is how long an endpoint may take to answer, and readPatience how long reading the records
// may. At a slow store, TLS and the connection take several answers.
const endpointPatience, readPatience = 8 * time.Second, 10 * time.Second

// askStore asks each endpoint of the store, and then reads the records.
func askStore(ctx context.Context, s Settings, d Daemon, offline bool) Store {
	cfg := s.Config
	client := cfg.StoreClient(slog.New(slog.DiscardHandler))
	out := Store{What: etcdStore}
	switch {
	case offline:
		out.Why = "was not asked (--offline)"
	case cfg.Kube.On, d.answers() && d.Status.Store.Kind == control.KindKubernetes:
		return askServer(ctx, d)
	case s.NotKnown != "":
		out.Why = "was not asked: " + s.NotKnown
	case cfg.UsesEmbedded() && !d.answers():
		out.Why = "it is weftd's own, which does not run"
	}
	out.Warnings, out.Check = client.Check()
	if out.Why != "" {
		return out
	}
	if out.Check != nil {
		out.Why = "its settings have a fault"
	}
	out.Asked = out.Check == nil
	config, err := tlsOf(cfg.Store)
	if err != nil {
		return out // checkFiles says why
	}
	out.Asked = true
	out.Guessed = !slices.ContainsFunc(cfg.Settings, func(x options.Setting) bool {
		return x.Name == "etcd-endpoints" && x.Source != "default"
	})
	out.Endpoints = askEndpoints(ctx, client.Endpoints, config)
	if out.answering() == 0 {
		if out.Guessed && !d.answers() && !s.Given {
			return Store{What: etcdStore, Warnings: out.Warnings, Why: "was not read: none answers at " +
				strings.Join(client.Endpoints, " or ") +
				", where weftd looks unless it is told otherwise; if this host's is told, give weft doctor its flags " +
				"behind --"}
		}
		out.Err = errors.New("no endpoint answers")
		return out
	}
	store, err := etcd.New(client)
	if err != nil {
		out.Err = err
		return out
	}
	defer func() { _ = store.Close() }() // nothing was written
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	out.Snapshot, out.Err = store.Snapshot(ctx)
	return out
}

// storeLost reads from the history in dir when the store did not answer the running weftd lately.
func storeLost(dir string, now time.Time) []events.Event {
	all, _ := events.Read(dir, now.Add(-lostWithin)) // without a history nothing is known
	return slices.DeleteFunc(all, func(e events.Event) bool {
		return e.Kind != events.Kind(lease.EventStoreLost) || e.Time.After(now) // the clock was set back since
	})
}

// askServer asks the API server without credentials, which tells whether it is there and what time it has;
// whether it serves this node only weftd knows.
func askServer(ctx context.Context, d Daemon) Store {
	out := Store{What: apiServer, Why: "weftd, which does not answer, knows its address and credentials: " +
		"weftd --check, with weftd's flags, asks it"}
	if !d.answers() {
		return out
	}
	out.Asked = true
	if st := d.Status.Store; !st.Connected {
		out.Err = errors.New(st.Error)
	}
	// weftd checks who it is
	out.Endpoints = askEndpoints(ctx, d.Status.Store.Endpoints,
		&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	return out
}

func askEndpoints(ctx context.Context, urls []string, config *tls.Config) []Endpoint {
	out := make([]Endpoint, len(urls))
	var wg sync.WaitGroup
	for i, u := range urls {
		wg.Go(func() { out[i] = askEndpoint(ctx, u, config) })
	}
	wg.Wait()
	return out
}

// askEndpoint asks for the version, which etcd and the API server tell anybody.
func askEndpoint(ctx context.Context, text string, config *tls.Config) Endpoint {
	e := Endpoint{URL: redact.URL(text)}
	if !strings.Contains(text, "://") {
		text = map[bool]string{true: "https://", false: "http://"}[config != nil] + text
	}
	u, err := url.Parse(text)
	if err != nil {
		e.Err = errors.New("it is no URL such as https://192.0.2.1:2379")
		return e
	}
	u.User = nil
	e.Host = u.Host
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	ctx, cancel := context.WithTimeout(ctx, endpointPatience)
	defer cancel()
	network, address := "tcp", net.JoinHostPort(u.Hostname(),
		cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))
	if path, ok := strings.CutPrefix(u.Scheme, "unix"); ok {
		network, address = "unix", u.Host+u.Path
		u.Scheme, u.Host = "http"+path, "localhost"
	} else {
		e.Host = address
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
		if e.Err = err; err != nil {
			return e
		}
		for _, a := range found {
			e.Addrs = append(e.Addrs, a.Unmap())
		}
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	e.ask(ctx, u, dial, config)
	return e
}

// These are for an endpoint that was asked without TLS and speaks it, and for the other way round.
var errTLS, errNoTLS = errors.New("it speaks TLS"), errors.New("it does not speak TLS")

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func (e *Endpoint) ask(ctx context.Context, u *url.URL, dial dialer, config *tls.Config) {
	config = config.Clone()
	config.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) > 0 {
			e.Shown = s.PeerCertificates[0]
		}
		return nil
	}
	began := time.Now()
	resp, body, err := get(ctx, dial, config, u.Scheme+"://"+u.Host+"/version")
	took := time.Since(began)
	e.Err = err
	switch plain := u.Scheme == "http"; {
	case err != nil && isDial(err):
	case plain && (err != nil || strings.Contains(string(body), "HTTP request to an HTTPS server")):
		if speaksTLS(ctx, dial) {
			e.Err = errTLS
		}
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		// some etcds say nothing to a client that begins with TLS
		resp, _, err := get(ctx, dial, nil, "http://"+u.Host+"/version")
		if err == nil && resp.StatusCode == http.StatusOK {
			e.Err = errNoTLS
		}
	}
	if e.Err != nil {
		return
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		e.Clock, e.Within = true, took+time.Second
		e.Ahead = date.Add(time.Second / 2).Sub(began.Add(took / 2)).Round(time.Millisecond)
	}
	// etcd's own check needs no credentials, and knows its alarms. An API server says nothing of the kind.
	var said struct{ Health, Reason string }
	_, body, err = get(ctx, dial, config, u.Scheme+"://"+u.Host+"/health")
	if err == nil && json.Unmarshal(body, &said) == nil && said.Health == "false" {
		e.Alarm = cmp.Or(said.Reason, "no reason given")
	}
}

// get gets a page, of which the beginning counts.
func get(ctx context.Context, dial dialer, config *tls.Config, url string) (*http.Response, []byte, error) {
	client := http.Client{
		Transport:     &http.Transport{DialContext: dial, TLSClientConfig: config, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<12)) // half of it would do
	return resp, body, nil
}

// isDial says that there was no connection at all.
func isDial(err error) bool {
	op := new(net.OpError)
	return errors.As(err, &op) && op.Op == "dial"
}

// speaksTLS says whether who listens there answers with TLS.
func speaksTLS(ctx context.Context, dial dialer) bool {
	conn, err := dial(ctx, "", "")
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) // nothing is sent
	err = c.HandshakeContext(ctx)
	return err == nil || strings.Contains(err.Error(), "remote error: tls")
}

// tlsOf is the configuration by which s talks to https; nil if no file is named.
func tlsOf(s options.Store) (*tls.Config, error) {
	if s.CAFile == "" && s.CertFile == "" && s.KeyFile == "" {
		return nil, nil
	}
	files := transport.TLSInfo{TrustedCAFile: s.CAFile}
	if s.CertFile != "" && s.KeyFile != "" {
		files.CertFile, files.KeyFile = s.CertFile, s.KeyFile
	}
	c, err := files.ClientConfig()
	if err == nil && s.CAFile != "" && c.RootCAs.Equal(x509.NewCertPool()) {
		err = fmt.Errorf("%s: no PEM certificate in it", s.CAFile)
	}
	return c, err
}

// readFiles reads the certificates that the settings name. Those for the controller of routes are looked at
// as far as they can be read: CheckFiles has what is wrong with the others.
func readFiles(cfg options.Config) (out []CertFile) {
	s := cfg.Store
	for _, x := range []struct {
		flag, path string
		hook       bool
	}{
		{hookCAFlag, cfg.Hook.CAFile, true}, {"route-hook-certfile", cfg.Hook.CertFile, true},
		{caFlag, s.CAFile, false}, {certFlag, s.CertFile, false},
	} {
		if x.path == "" {
			continue
		}
		if file := readFile(x.flag, x.path); file.Err == nil || !x.hook {
			out = append(out, file)
		}
	}
	switch {
	case s.KeyFile != "":
		file := CertFile{Flag: "etcd-keyfile", Path: s.KeyFile}
		if _, err := os.ReadFile(s.KeyFile); err != nil {
			file.Err = err
		} else if s.CertFile == "" {
			file.Err = errors.New("it is a key without its certificate: --etcd-certfile is missing")
		} else if _, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile); err != nil && out[len(out)-1].Err == nil {
			file.Err = fmt.Errorf("it is not the key of %s: %w", s.CertFile, err)
		}
		out = append(out, file)
	case s.CertFile != "":
		out = append(out, CertFile{Flag: certFlag, Path: s.CertFile,
			Err: errors.New("its key is not given: --etcd-keyfile is missing")})
	}
	return out
}

func readFile(flag, path string) CertFile {
	file := CertFile{Flag: flag, Path: path}
	b, err := os.ReadFile(path)
	if file.Err = err; err != nil {
		return file
	}
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			file.Err = fmt.Errorf("a certificate in it cannot be read: %w", err)
			return file
		}
		file.Certs = append(file.Certs, c)
	}
	if len(file.Certs) == 0 {
		file.Err = errors.New("no PEM certificate in it")
	}
	return file
}

// recordsOf are the records that the daemon knows, for a store that was not read.
func recordsOf(l control.Leases) (out []lease.Record) {
	for _, r := range l.Leases {
		x := lease.Record{Subnets: lease.Subnets{V4: r.Subnet, V6: r.IPv6Subnet}, Expires: r.Expires,
			Reservation: r.Reservation, Revision: r.Revision,
			Attrs: lease.Attrs{PublicIP: r.PublicIP, PublicIPv6: r.PublicIPv6, BackendType: r.Backend}}
		if r.Node != "" {
			x.Weft = &lease.Weft{Node: r.Node}
		}
		out = append(out, x)
	}
	return out
}
