package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
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
	client := s.StoreClient(slog.New(slog.DiscardHandler))
	out := Store{What: etcdStore}
	switch {
	case offline:
		out.Why = "was not asked (--offline)"
	case s.Kube.On, d.Answers() && d.Status.Store.Kind == control.KindKubernetes:
		return askServer(ctx, d)
	case s.NotKnown != "":
		out.Why = "was not asked: " + s.NotKnown
	case s.UsesEmbedded() && !d.Answers():
		out.Why = "it is weftd's own, which does not run"
	}
	out.Warnings, out.Check = client.Check()
	if out.Why == "" && out.Check != nil {
		out.Why = "its settings have a fault"
	}
	if out.Why != "" {
		return out
	}
	out.Asked = true
	out.Guessed = !slices.ContainsFunc(s.Settings, func(x options.Setting) bool {
		return x.Name == "etcd-endpoints" && x.Source != "default"
	})
	urls, config := client.Access()
	out.Endpoints = askEndpoints(ctx, urls, config)
	if out.answering() == 0 {
		if out.Guessed && !d.Answers() && !s.Given {
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
	if !d.Answers() {
		return Store{What: apiServer, Why: "weftd, which does not answer, knows its address and credentials: " +
			"weftd --check, with weftd's flags, asks it"}
	}
	out := Store{What: apiServer, Asked: true}
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

// askEndpoint asks for the version, which etcd and the API server tell anybody, and for the health, with
// which etcd tells its alarms.
func askEndpoint(ctx context.Context, text string, config *tls.Config) (e Endpoint) {
	e.URL = redact.URL(text)
	u, err := url.Parse(text)
	if err != nil {
		e.Err = errors.New("it is no URL such as https://192.0.2.1:2379")
		return e
	}
	ctx, cancel := context.WithTimeout(ctx, endpointPatience)
	defer cancel()
	dial := new(net.Dialer).DialContext
	if kind, ok := strings.CutPrefix(u.Scheme, "unix"); ok {
		at := u.Host + u.Path
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", at)
		}
		u.Scheme, u.Host = "http"+kind, "localhost"
	} else {
		found, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname()) // the request says why it fails
		for _, a := range found {
			e.Addrs = append(e.Addrs, a.Unmap())
		}
	}
	client := http.Client{
		Transport:     &http.Transport{DialContext: dial, TLSClientConfig: config, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	began := time.Now()
	resp, body, err := get(ctx, &client, u.Scheme+"://"+u.Host+"/version")
	took := time.Since(began)
	switch {
	case strings.Contains(string(body), "HTTP request to an HTTPS server"):
		err = errors.New("malformed HTTP response")
	case u.Scheme == "https" && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		// some etcds say nothing to a client that begins with TLS
		if _, _, plain := get(ctx, &client, "http://"+u.Host+"/version"); plain == nil {
			err = errors.New("server gave HTTP response to HTTPS client")
		}
	}
	if e.Err = err; err != nil {
		return e
	}
	if resp.TLS != nil {
		e.Shown = resp.TLS.PeerCertificates[0]
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		e.Clock, e.Within = true, took+time.Second
		e.Ahead = date.Add(time.Second / 2).Sub(began.Add(took / 2)).Round(time.Millisecond)
	}
	var said struct{ Health, Reason string }
	_, body, err = get(ctx, &client, u.Scheme+"://"+u.Host+"/health")
	if err == nil && json.Unmarshal(body, &said) == nil && said.Health == "false" {
		e.Alarm = cmp.Or(said.Reason, "no reason given")
	}
	return e
}

// get gets a page, of which the beginning counts.
func get(ctx context.Context, client *http.Client, url string) (*http.Response, []byte, error) {
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

// readFiles reads the certificates that the settings name. What is wrong with those for the controller of
// routes CheckFiles says.
func readFiles(cfg options.Config) (out []CertFile) {
	for _, f := range []CertFile{
		{Flag: "route-hook-cafile", Path: cfg.Hook.CAFile}, {Flag: "route-hook-certfile", Path: cfg.Hook.CertFile},
		{Flag: "etcd-cafile", Path: cfg.Store.CAFile}, {Flag: "etcd-certfile", Path: cfg.Store.CertFile},
	} {
		if f.Path == "" {
			continue
		}
		if f.read(); f.Err == nil || strings.HasPrefix(f.Flag, "etcd") {
			out = append(out, f)
		}
	}
	return out
}

// read takes the dates as weftd does.
func (f *CertFile) read() {
	b, err := os.ReadFile(f.Path)
	if f.Err = err; err != nil {
		return
	}
	var ok bool
	if f.Begins, f.Ends, ok = etcd.Validity(b); !ok {
		f.Err = errors.New("no PEM certificate is in it")
	}
}
