package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// access is one thing that we ask the API server for, in the terms of its authorization rules.
type access struct{ verb, resource, name string }

func (a access) String() string {
	s := a.verb + " " + a.resource
	if a.name != "" {
		s += " " + a.name
	}
	return s
}

// explain says what an error of the API server means, and what to do about it.
func (c *Client) explain(a access, err error) error {
	var authority x509.UnknownAuthorityError
	var certificate *tls.CertificateVerificationError
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: forbidden: the ClusterRole of this account lacks verb %q on resource %q in API "+
			"group \"\": add it, and see that a ClusterRoleBinding names the account: %w", a, a.verb, a.resource, err)
	case apierrors.IsUnauthorized(err):
		c.conn.Load().hangUp() // the certificate that a connection began with may have been replaced by now
		return fmt.Errorf("%s: the API server %s does not accept our credentials: the token or certificate is "+
			"expired, or is another cluster's: %w", a, c.host(), err)
	case apierrors.IsNotFound(err) && a.resource == "nodes":
		return &noNodeError{name: a.name, cause: err}
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s: there is none: POD_NAME and POD_NAMESPACE name the pod that we run in: %w", a, err)
	case errors.As(err, &authority), errors.As(err, &certificate):
		return fmt.Errorf("%s: the certificate of %s is not that of the cluster's authority: the kubeconfig or "+
			"the service account is another cluster's, or something sits between: %w", a, c.host(), err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: a file with credentials is gone: %w", a, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: the API server %s does not answer in time: %w", a, c.host(), err)
	case apierrors.ReasonForError(err) != "":
		return fmt.Errorf("%s: the API server refuses: %w", a, err)
	}
	return fmt.Errorf("%s: no answer of the API server %s: %w", a, c.host(), err)
}

// Refuses reports whether an error of a Client is the API server's refusal rather than its silence.
func Refuses(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// noNodeError says that our Node object is not there.
type noNodeError struct {
	name  string
	cause error
}

func (e *noNodeError) Error() string {
	return fmt.Sprintf("there is no Node %q in the cluster: NODE_NAME is another name than the kubelet's, or "+
		"the kubelet has not registered, or the Node was deleted", e.name)
}

func (e *noNodeError) Unwrap() error { return e.cause }
