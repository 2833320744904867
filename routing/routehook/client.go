package routehook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"weft/lease/redact"
)

// Options say where the controller is and who this node is to it.
type Options struct {
	// URL is the controller's: views are at v1/views/NODE below it. It is https, or http on a loopback address.
	URL string
	// TokenFile, if not "", has a bearer token (RFC 6750) in its first line. CAFile has the authorities whose
	// certificates are believed, "" for the system's; CertFile and KeyFile are what this node shows. All are PEM
	// files, and all are read again for each request, so that what is renewed counts at once.
	TokenFile, CAFile, CertFile, KeyFile string
}

// Limits of one exchange.
const (
	// exchangeTimeout bounds one request with its answer.
	exchangeTimeout = 10 * time.Second
	// maxAnswer is how much of an answer is read, in bytes: maxRoutes verdicts would be more, real networks are
	// far below.
	maxAnswer = 16 << 20
	// maxToken is how long a token may be, in bytes.
	maxToken = 8 << 10
	// retryAfterMost bounds what a controller may ask for with Retry-After.
	retryAfterMost = 10 * time.Minute
)

// Check returns what is wrong with options, without reading a file.
func (o Options) Check() error {
	u, err := url.Parse(o.URL)
	shown := redact.URL(o.URL)
	switch {
	case o.URL == "":
		return errors.New("the controller's URL is missing")
	case err != nil:
		return fmt.Errorf("the controller's URL %q is none", shown) // err repeats it
	case u.User != nil:
		return fmt.Errorf("the controller's URL at %s has a name or password in it: a token belongs into a file",
			shown)
	case u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return fmt.Errorf("the controller's URL %q: want https://HOST[:PORT][/PATH]", shown)
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return fmt.Errorf("the controller's URL %q: whoever is on the way could change the routes of all pods: "+
			"want https (http is taken for 127.0.0.1 and ::1 alone)", shown)
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("the controller's URL %q: want https://HOST[:PORT][/PATH]", shown)
	case (o.CertFile == "") != (o.KeyFile == ""):
		return errors.New("a certificate needs its key, and a key its certificate")
	}
	return nil
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// Client gives a controller the views of one node. It is for one goroutine at a time.
type Client struct {
	o    Options
	at   string // the URL of the node's view
	etag string // of the representation that the next view replaces; "" for none that is known
}

// NewClient returns a client for a node. The error is that of Options.Check.
func NewClient(o Options, node string) (*Client, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	return &Client{o: o, at: strings.TrimRight(o.URL, "/") + "/v1/views/" + url.PathEscape(node)}, nil
}

// At is the URL of the node's view.
func (c *Client) At() string { return c.at }

// An Error is an answer that is none to a view.
type Error struct {
	// Status is that of HTTP; 0 if there was no answer at all.
	Status int
	// After is how long the controller wants to be left alone; 0 if it does not say.
	After time.Duration
	text  string
	cause error
}

func (e *Error) Error() string { return e.text }

func (e *Error) Unwrap() error { return e.cause }

// Put gives the controller a view, in place of whatever it had of this node. Of a view that it did not take,
// or whose answer did not arrive, nothing is known: the same or a later view is to be given again. The error
// is an *Error. It takes at most 10 s for each of at most three exchanges.
func (c *Client) Put(ctx context.Context, v View) (Answer, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return Answer{}, c.failed(0, "it cannot be written down", err)
	}
	for range 2 {
		r, err := c.exchange(ctx, http.MethodPut, body)
		if err != nil {
			return Answer{}, err
		}
		switch r.status {
		case http.StatusOK, http.StatusCreated:
			return c.taken(r, v)
		case http.StatusPreconditionFailed:
			// an earlier process of ours, an earlier request, or the controller began anew
			if err := c.learn(ctx); err != nil {
				return Answer{}, err
			}
		default:
			return Answer{}, c.refusal(r)
		}
	}
	return Answer{}, c.failed(http.StatusPreconditionFailed,
		"somebody else gives it views of this node: is there a second node with this identity?", nil)
}

// taken reads the answer to a view that was taken.
func (c *Client) taken(r response, v View) (Answer, error) {
	c.etag = r.etag
	if !strings.HasPrefix(r.etag, `"`) { // a weak one never matches (RFC 9110, section 13.1.1)
		c.etag = ""
		return Answer{}, c.failed(r.status, fmt.Sprintf("it answers without a strong ETag (%q), by which late "+
			"requests are told from new ones", r.etag), nil)
	}
	var a Answer
	if err := json.Unmarshal(r.body, &a); err != nil {
		return Answer{}, c.failed(r.status, "its answer is not the JSON that it should be", err)
	}
	if err := a.check(v); err != nil {
		return Answer{}, c.failed(r.status, err.Error(), nil)
	}
	return a, nil
}

// learn asks which representation the controller has.
func (c *Client) learn(ctx context.Context) error {
	r, err := c.exchange(ctx, http.MethodGet, nil)
	switch {
	case err != nil:
		return err
	case r.status == http.StatusNotFound:
		c.etag = ""
	case r.status != http.StatusOK:
		return c.refusal(r)
	default:
		c.etag = r.etag
	}
	return nil
}

// response is what came back.
type response struct {
	status int
	etag   string
	after  time.Duration
	body   []byte
}

// exchange is one request. Nothing is kept from one to the next but the ETag: files may have changed, and a
// minute lies between two.
func (c *Client) exchange(ctx context.Context, method string, body []byte) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.at, bytes.NewReader(body))
	if err != nil {
		return response{}, c.failed(0, err.Error(), err)
	}
	req.Header.Set("Accept", "application/json")
	if method == http.MethodPut {
		req.Header.Set("Content-Type", "application/json")
		if c.etag != "" {
			req.Header.Set("If-Match", c.etag)
		} else {
			req.Header.Set("If-None-Match", "*")
		}
	}
	trust, err := c.o.authenticate(req)
	if err != nil {
		return response{}, c.failed(0, err.Error(), err)
	}
	transport := &http.Transport{
		TLSClientConfig: trust, DisableKeepAlives: true, DisableCompression: true, ForceAttemptHTTP2: true,
		DialContext: (&net.Dialer{Timeout: exchangeTimeout}).DialContext,
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{
		Transport: transport,
		// A token is not carried elsewhere, and a PUT must not become a GET.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return response{}, c.failed(0, reason(ctx, err), err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing is lost with it
	out := response{status: resp.StatusCode, etag: resp.Header.Get("ETag"),
		after: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	if out.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1)); err != nil {
		return response{}, c.failed(out.status, "its answer ended early: "+reason(ctx, err), err)
	}
	if len(out.body) > maxAnswer {
		return response{}, c.failed(out.status, fmt.Sprintf("its answer is longer than %d bytes", maxAnswer), nil)
	}
	if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); method == http.MethodPut &&
		out.status/100 == 2 && t != "application/json" {
		return response{}, c.failed(out.status, fmt.Sprintf("it answers with %q, and not with application/json: "+
			"is that the controller?", t), nil)
	}
	return out, nil
}

// authenticate puts the token into a request and returns what the connection shows and believes.
func (o Options) authenticate(req *http.Request) (*tls.Config, error) {
	if o.TokenFile != "" {
		b, err := readSmall(o.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("the token: %w", err)
		}
		line, _, _ := strings.Cut(string(b), "\n")
		token := strings.TrimSpace(line)
		if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil,
				fmt.Errorf("the token: the first line of %s is not one: want visible characters without spaces",
					o.TokenFile)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		b, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("the authorities: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("the authorities: %s has no certificate in PEM", o.CAFile)
		}
	}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("the certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// CheckFiles reads the files as a request would, and returns what is wrong with one of them.
func (o Options) CheckFiles() error {
	_, err := o.authenticate(&http.Request{Header: http.Header{}})
	return err
}

// readSmall reads the beginning of a file, whatever it is.
func readSmall(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was read only
	return io.ReadAll(io.LimitReader(f, maxToken))
}

// refusal is the error of an answer that is not one of the expected.
func (c *Client) refusal(r response) error {
	about := "it answers " + strconv.Itoa(r.status) + " " + http.StatusText(r.status)
	switch {
	case r.status == http.StatusUnauthorized || r.status == http.StatusForbidden:
		about += ": does the controller know this node's token or certificate?"
	case r.status == http.StatusNotFound:
		about += ": is the URL right?"
	case r.status/100 == 3:
		about += ": it sends elsewhere, which is not followed, since the token would go there too"
	}
	if text := firstLine(r.body); text != "" {
		about += " (" + text + ")"
	}
	e := c.failed(r.status, about, nil)
	e.After = r.after
	return e
}

func (c *Client) failed(status int, what string, cause error) *Error {
	return &Error{Status: status, text: "the controller at " + c.o.URL + ": " + what, cause: cause}
}

// reason is err without the URL, which the message has already, and without what only means that time is
// over.
func reason(ctx context.Context, err error) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %s", exchangeTimeout)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return err.Error()
}

// firstLine is the beginning of a text that somebody sent, for a message.
func firstLine(b []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(b[:min(len(b), 200)])), "\n")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return -1
		}
		return r
	}, line)
}

// retryAfter reads the header of that name (RFC 9110, section 10.2.3); 0 for none.
func retryAfter(text string, now time.Time) time.Duration {
	var d time.Duration
	if n, err := strconv.Atoi(text); err == nil {
		d = time.Duration(min(max(n, 0), int(retryAfterMost/time.Second))) * time.Second
	} else if t, err := http.ParseTime(text); err == nil {
		d = t.Sub(now)
	}
	return min(max(d, 0), retryAfterMost)
}
