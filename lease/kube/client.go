package kube

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"weft/lease"
	"weft/lease/redact"
)

const (
	// callTimeout bounds one call of the API server.
	callTimeout = 10 * time.Second
	// listTimeout bounds one page of a list.
	listTimeout = time.Minute
)

// Client talks to one API server. Its methods are safe for concurrent use.
type Client struct {
	cfg  Config // as it was when the daemon started; conn has what has been reloaded
	keys keys
	conn atomic.Pointer[conn] // never nil; Reload replaces it

	mu   sync.Mutex
	name string // of our Node, once it is known
}

// conn is how the API server is reached.
type conn struct {
	host   string
	api    *rest.RESTClient
	hangUp func() // closes all connections
	read   [sha256.Size]byte
}

// Node is what our own Node object says when the daemon starts.
type Node struct {
	// Name and UID are the object's.
	Name, UID string
	// Subnets are its podCIDRs; zero while none are assigned, or if they are none that a
	// manager could use: it says why.
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
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	loaded, err := c.load()
	if err != nil {
		return nil, err
	}
	out := &Client{cfg: c, name: c.NodeName}
	if out.keys, err = newKeys(c.AnnotationPrefix); err != nil {
		return nil, err
	}
	w, err := newConn(loaded, c)
	if err != nil {
		return nil, err
	}
	out.conn.Store(w)
	return out, nil
}

// newConn makes a client that is loaded from c's files. It opens no connection.
func newConn(loaded *rest.Config, c Config) (*conn, error) {
	out := &conn{host: redact.URL(loaded.Host), read: contents(loaded, c)}
	var err error
	if out.api, out.hangUp, err = newREST(loaded, c.Logger); err != nil {
		return nil, fmt.Errorf("client of the API server %s: %w", out.host, err)
	}
	if !strings.Contains(out.host, "://") { // the library takes a bare host too
		out.host = out.api.Get().URL().Scheme + "://" + out.host
	}
	return out, nil
}

// api returns the client in use, and host the URL that it asks.
func (c *Client) api() *rest.RESTClient { return c.conn.Load().api }
func (c *Client) host() string          { return c.conn.Load().host }

// Endpoints is the URL of the API server. In a pod that is the cluster's Service, whose address
// lies outside of the overlay.
func (c *Client) Endpoints() []string { return []string{c.host()} }

// Close closes the connections, and ends what they carry.
func (c *Client) Close() error {
	c.conn.Load().hangUp()
	return nil
}

// Node reads our own Node object, once. The error says what the API server lacks or what it
// does not let us do.
func (c *Client) Node(ctx context.Context) (Node, error) {
	name, err := c.nodeName(ctx)
	if err != nil {
		return Node{}, err
	}
	obj, err := c.getNode(ctx, name, "")
	if err != nil {
		return Node{}, err
	}
	n := Node{Name: obj.Name, UID: string(obj.UID)}
	n.Subnets, _ = parseCIDRs(cidrsOf(obj)) // a manager tells
	if n.PublicIP, n.PublicIPv6, err = c.keys.nodePublic(obj.Annotations); err != nil {
		return Node{}, fmt.Errorf("node %q: %w", name, err)
	}
	return n, nil
}

// nodeName returns the name of our Node, which a pod never changes.
func (c *Client) nodeName(ctx context.Context) (string, error) {
	c.mu.Lock()
	known := c.name
	c.mu.Unlock()
	if known != "" {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var pod corev1.Pod
	err := c.api().Get().Namespace(c.cfg.PodNamespace).Resource("pods").Name(c.cfg.PodName).Do(ctx).Into(&pod)
	if err != nil {
		return "", fmt.Errorf("which Node is ours (or set NODE_NAME): %w",
			c.explain(access{"get", "pods", c.cfg.PodNamespace + "/" + c.cfg.PodName}, err))
	}
	if !validName(pod.Spec.NodeName) {
		return "", fmt.Errorf("pod %s/%s has the Node name %q: it is not scheduled yet, or POD_NAME names "+
			"another pod", c.cfg.PodNamespace, c.cfg.PodName, pod.Spec.NodeName)
	}
	c.mu.Lock()
	c.name = pod.Spec.NodeName
	c.mu.Unlock()
	return pod.Spec.NodeName, nil
}

// getNode reads a Node. Version "" asks for the newest, "0" for whatever the API server has at hand.
func (c *Client) getNode(ctx context.Context, name, version string) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	obj := new(corev1.Node)
	if err := readNode(ctx, c.api(), name, version, obj); err != nil {
		return nil, c.explain(access{"get", "nodes", name}, err)
	}
	return obj, nil
}

func readNode(ctx context.Context, api *rest.RESTClient, name, version string, to *corev1.Node) error {
	return api.Get().Resource("nodes").Name(name).
		VersionedParams(&metav1.GetOptions{ResourceVersion: version}, metav1.ParameterCodec).Do(ctx).Into(to)
}

// patchStatus sends a strategic merge patch, and returns what the Node is after it.
func (c *Client) patchStatus(ctx context.Context, name string, patch []byte) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	obj := new(corev1.Node)
	err := c.api().Patch(types.StrategicMergePatchType).Resource("nodes").Name(name).SubResource("status").
		Body(patch).Do(ctx).Into(obj)
	if err != nil {
		return nil, c.explain(access{"patch", "nodes/status", name}, err)
	}
	return obj, nil
}

// list reads one page of Nodes.
func (c *Client) list(ctx context.Context, o metav1.ListOptions) (*corev1.NodeList, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	out := new(corev1.NodeList)
	err := c.api().Get().Resource("nodes").VersionedParams(&o, metav1.ParameterCodec).Do(ctx).Into(out)
	return out, err
}

// watch opens a watch of Nodes, which ends with ctx.
func (c *Client) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return c.api().Get().Resource("nodes").VersionedParams(&o, metav1.ParameterCodec).Watch(ctx)
}
