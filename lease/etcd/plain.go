package etcd

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weft/lease/redact"
)

// plainError is an error of the client library in one sentence that says what is wrong and what to do. It
// wraps that error.
type plainError struct {
	text string
	err  error
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.err }

// plainly puts what gRPC says of a connection into a sentence. The words before gRPC's, such as the key being
// read, stay. An error without such words is returned as it is.
func (s *Store) plainly(err error) error { return plainly(s.config(), err) }

// plainly is as Store.plainly, for a connection that was made with r.
func plainly(r *resolved, err error) error {
	if err == nil {
		return nil
	}
	text, at := err.Error(), -1
	for _, mark := range []string{"context deadline exceeded", "rpc error: ", "connection error: "} {
		if i := strings.Index(text, mark); i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	if at < 0 {
		return err
	}
	store := "the store"
	if len(r.Endpoints) == 1 {
		store += " " + redact.URL(r.Endpoints[0])
	}
	tls := slices.ContainsFunc(r.Endpoints, isTLS)
	return &plainError{text[:at] + sentence(r.Config, store, tls, text[at:]), err}
}

// Explain says in one sentence why one endpoint did not answer, with what to do. store is its name there, and
// err that of gRPC or net/http.
func (c Config) Explain(store, endpoint string, err error) string {
	return sentence(c, store, isTLS(endpoint), err.Error())
}

func isTLS(endpoint string) bool {
	return strings.HasPrefix(endpoint, "https:") || strings.HasPrefix(endpoint, "unixs:")
}

// sentence says what gRPC means. The texts are those of gRPC, net/http, crypto/tls and crypto/x509: typed
// errors do not come through the client library.
func sentence(cfg Config, store string, tls bool, cause string) string {
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(cause, p) })
	}
	alert := ""
	if _, after, ok := strings.Cut(cause, "remote error: tls: "); ok {
		alert = strings.Trim(after, `"`)
	}
	switch {
	case has("certificate signed by unknown authority"):
		return store + "'s certificate is signed by an authority that this node does not know: name its CA's " +
			"file with --etcd-cafile"
	case has("certificate has expired or is not yet valid"):
		if m := regexp.MustCompile(`is (after|before) ([-0-9T:Z+]+)`).FindStringSubmatch(cause); m != nil &&
			m[1] == "before" {
			return store + "'s certificate is valid only from " + m[2] + " on: look at this host's clock (timedatectl)"
		} else if m != nil {
			return store + "'s certificate has expired on " + m[2] +
				": renew it on that host; if it has not, look at this host's clock (timedatectl)"
		}
		return store + "'s certificate has expired, or is not valid yet: renew it on that host, and look at both " +
			"clocks (timedatectl)"
	case has("x509: certificate is valid for ", "x509: certificate is not valid for any names",
		"x509: cannot validate certificate for "):
		return store + "'s certificate is for other names (" + after(cause, "x509: ") +
			"): write the endpoint as the certificate has it, or make one with this name"
	case alert != "" && cfg.CertFile == "" && (strings.Contains(alert, "bad certificate") ||
		strings.Contains(alert, "certificate required") || strings.Contains(alert, "handshake failure")):
		return store + " asks for a client certificate, and none is given: name ours with --etcd-certfile and " +
			"--etcd-keyfile"
	case strings.Contains(alert, "expired certificate"):
		return store + " refuses our client certificate " + cfg.CertFile +
			" as expired: renew it, and look at both clocks (timedatectl)"
	case alert != "" && cfg.CertFile != "":
		return store + " refuses our client certificate " + cfg.CertFile + " (" + alert +
			"): its own CA (--trusted-ca-file of etcd) has to have signed it, for clients, and its dates have to be " +
			"good"
	case has("error reading from server"): // it had been there, so that nothing about it is refused
		return store + " has ended the connection: etcd was stopped or restarted, or something on the way cut " +
			"it; look whether etcd runs"
	case tls && has("broken pipe", "connection reset by peer", "error reading server preface: EOF"):
		// with TLS 1.3 the refusal may be lost
		if cfg.CertFile == "" {
			return store + " closes the connection: it probably asks for a client certificate, and none is given: " +
				"name ours with --etcd-certfile and --etcd-keyfile"
		}
		return store + " closes the connection: it probably refuses our client certificate " + cfg.CertFile +
			": its own CA (--trusted-ca-file of etcd) has to have signed it, for clients, and its dates have to be " +
			"good"
	case has("first record does not look like a TLS handshake", "server gave HTTP response to HTTPS client"),
		tls && has("authentication handshake failed: EOF", "authentication handshake failed: read tcp"):
		return store + " does not speak TLS, and was asked with TLS: write http:// in --etcd-endpoints, or give " +
			"etcd a certificate"
	case has("malformed HTTP response"):
		return store + " speaks TLS, and was asked without: write https:// in --etcd-endpoints, and name its CA " +
			"with --etcd-cafile"
	case !tls && has("error reading server preface: EOF", "error reading server preface: http2: ",
		"connection reset by peer"):
		return store + " closes the connection without an answer: if it speaks TLS, write https:// in " +
			"--etcd-endpoints and name its CA with --etcd-cafile"
	case has("connection refused"):
		return store + " refuses the connection, and nothing listens there: look whether etcd runs, and at which " +
			"address and port"
	case has("no such host", "server misbehaving", ": lookup "):
		return store + "'s name does not resolve: it is misspelt in --etcd-endpoints, or the name server does " +
			"not answer"
	case has("network is unreachable", "no route to host"):
		return "there is no way to " + store + " (" + after(cause, "connect: ") +
			"): a route is missing, its host is down, or something on the way refuses"
	case has("i/o timeout", "while waiting for connections to become ready"),
		cause == "context deadline exceeded":
		return store + " does not answer in time: its host is down or overloaded, or a firewall drops its port"
	}
	return store + " does not answer: " + after(cause, "desc = ")
}

// after is what follows the last mark, without quotation marks around it; all if there is none.
func after(text, mark string) string {
	if i := strings.LastIndex(text, mark); i >= 0 {
		text = text[i+len(mark):]
	}
	if plain, err := strconv.Unquote(text); err == nil {
		return plain
	}
	return strings.Trim(text, `"`)
}
