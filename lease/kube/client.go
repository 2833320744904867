package kube

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"

	"weft/lease"
)

// Config says how the API server is found, and which Node is ours.
type Config struct {
	// APIURL and Kubeconfig are --kube-api-url and --kubeconfig-file; both empty means the
	// service account of the pod that we run in.
	APIURL, Kubeconfig string
	// AnnotationPrefix is --kube-annotation-prefix; empty means flannel.alpha.coreos.com.
	AnnotationPrefix string
	// NodeName is NODE_NAME; without it the pod PodName in PodNamespace is asked where it runs.
	NodeName, PodName, PodNamespace string
	// SetNodeNetworkUnavailable lets us keep the condition NetworkUnavailable of our Node.
	SetNodeNetworkUnavailable bool
	// Logger gets warnings of the API server; nil drops them.
	Logger *slog.Logger
}

// Check returns every fault, joined. It opens no connection.
func (c Config) Check() error { return nil }

// Client talks to one API server. Its methods are safe for concurrent use.
type Client struct{ cfg Config }

// Node is what our own Node object says when the daemon starts.
type Node struct {
	// Name and UID are the object's.
	Name, UID string
	// Subnets are its podCIDRs; zero while none are assigned.
	Subnets lease.Subnets
	// PublicIP and PublicIPv6 are the annotations node-public-ip and node-public-ipv6, which
	// replace --public-ip and --public-ipv6; zero where absent.
	PublicIP, PublicIPv6 netip.Addr
}

// New loads the kubeconfig or the service account. It starts nothing.
func New(c Config) (*Client, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return &Client{cfg: c}, nil
}

// Endpoints is the URL of the API server.
func (c *Client) Endpoints() []string { return nil }

// Close closes the connections.
func (c *Client) Close() error { return nil }

// Node reads our own Node object, once.
func (c *Client) Node(ctx context.Context) (Node, error) {
	return Node{}, errors.New("not implemented")
}
