package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"weft/lease/redact"
)

// Config says how the API server is found, and which Node is ours.
type Config struct {
	// APIURL and Kubeconfig are --kube-api-url and --kubeconfig-file; both empty means the
	// service account of the pod that we run in. Of both, the URL is that of the first.
	APIURL, Kubeconfig string
	// AnnotationPrefix is --kube-annotation-prefix; empty means DefaultPrefix.
	AnnotationPrefix string
	// NodeName is NODE_NAME; without it the pod PodName in PodNamespace is asked where it runs.
	NodeName, PodName, PodNamespace string
	// SetNodeNetworkUnavailable lets us keep the condition NetworkUnavailable of our Node.
	SetNodeNetworkUnavailable bool
	// Logger gets the API server's warnings; nil drops them.
	Logger *slog.Logger
}

// Check returns every fault, joined. It opens no connection.
func (c Config) Check() error {
	var faults []error
	if _, err := newKeys(c.AnnotationPrefix); err != nil {
		faults = append(faults, fmt.Errorf("--kube-annotation-prefix: %w", err))
	}
	switch {
	case c.NodeName != "":
		if !validName(c.NodeName) {
			faults = append(faults, fmt.Errorf("NODE_NAME %q is not the name of a Node: want dots, dashes, "+
				"lower-case letters and digits", c.NodeName))
		}
	case c.PodName == "" || c.PodNamespace == "":
		faults = append(faults, fmt.Errorf("NODE_NAME is not set, and of POD_NAME %q and POD_NAMESPACE %q one is "+
			"empty: set NODE_NAME (fieldRef spec.nodeName), or both of the others (metadata.name, metadata.namespace)",
			c.PodName, c.PodNamespace))
	case !validName(c.PodName) || !validName(c.PodNamespace):
		faults = append(faults, fmt.Errorf("POD_NAME %q or POD_NAMESPACE %q is not a name: want dots, dashes, "+
			"lower-case letters and digits", c.PodName, c.PodNamespace))
	}
	if c.APIURL != "" {
		if u, err := url.Parse(c.APIURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			faults = append(faults, fmt.Errorf("--kube-api-url %q: want a URL such as https://192.0.2.1:6443",
				redact.URL(c.APIURL)))
		}
	}
	if len(faults) == 0 {
		if _, err := c.load(); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// load reads the kubeconfig, or the service account.
func (c Config) load() (*rest.Config, error) {
	if c.APIURL == "" && c.Kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("this is no pod with a service account, and neither --kubeconfig-file nor "+
				"--kube-api-url is given: %w", err)
		}
		return cfg, nil
	}
	if c.Kubeconfig != "" {
		if _, err := os.Stat(c.Kubeconfig); err != nil {
			return nil, fmt.Errorf("--kubeconfig-file: %w", err)
		}
	}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig},
		&clientcmd.ConfigOverrides{ClusterInfo: api.Cluster{Server: c.APIURL}}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig-file %q: %w", c.Kubeconfig, err)
	}
	return cfg, nil
}

// validName reports whether s can be the name of an object: a subdomain of RFC 1123, as the API
// server wants it. So it is also safe in a URL's path.
func validName(s string) bool {
	if s == "" || len(s) > 253 || strings.Trim(s, "-.") != s || strings.Contains(s, "..") {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}
