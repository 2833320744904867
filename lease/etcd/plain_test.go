package etcd

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// What is wrong with the way to the store is one sentence with what to do, and without the library's words.
// TestTLS has the same from a real server.
func TestStoreFaultsArePlain(t *testing.T) {
	t.Parallel()
	const before, balancer = "read /coreos.com/network: ",
		"context deadline exceeded: latest balancer error: connection error: desc = "
	for cause, want := range map[string]string{
		balancer +
			`"transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority (possibly because of \"x509: ECDSA verification failure\")"`: "https://e:1's",
		balancer +
			`"transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-11-22T16:00:00Z is after 2026-11-21T16:00:00Z"`: "2026-11-21T16:00:00Z",
		balancer +
			`"transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-11-22T16:00:00Z is before 2026-12-21T16:00:00Z"`: "2026-12-21T16:00:00Z",
		balancer +
			`"transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate is valid for 10.0.0.1, not 127.0.0.1"`: "127.0.0.1",
		balancer +
			`"error reading server preface: remote error: tls: certificate required"`: "certificate",
		balancer +
			`"transport: authentication handshake failed: EOF"`: "http://",
		balancer +
			`"transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`: "connection",
		balancer +
			`"transport: Error while dialing: dial tcp 198.18.255.253:2379: connect: network is unreachable"`: "https://e:1",
		balancer +
			`"transport: Error while dialing: dial tcp: lookup no.such.invalid on 10.255.255.53:53: no such host"`: "resolve",
		"context deadline exceeded: context deadline exceeded while waiting for connections to become ready": "answer",
		"context deadline exceeded": "answer",
		"rpc error: code = Unavailable desc = error reading from server: read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer": "connection",
		"rpc error: code = Unavailable desc = something new": "https://e:1",
	} {
		s := new(Store)
		s.cfg.Store(&resolved{Config: Config{Endpoints: []string{"https://e:1"}}})
		err := fmt.Errorf("%s%w", before, errors.New(cause))
		got := s.plainly(err)
		text := got.Error()
		if !strings.HasPrefix(text, before) || !strings.Contains(text, want) || !errors.Is(got, err) {
			t.Errorf("%s\nis %q, want %q in it", cause, text, want)
		}
		for _, theirs := range []string{"desc =", "balancer", "transport:", "context deadline", "code ="} {
			if strings.Contains(text, theirs) {
				t.Errorf("%q has the library's %q", text, theirs)
			}
		}
		if s.plainly(got).Error() != text {
			t.Errorf("not the same twice: %q", s.plainly(got))
		}
	}
	refused := errors.New("etcdserver: permission denied")
	if got := (&Store{}).plainly(refused); got != refused {
		t.Errorf("%v", got)
	}
}
