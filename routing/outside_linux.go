package routing

import (
	"cmp"
	"errors"

	"weft/routing/internal/kernel"
	"weft/routing/internal/plane"
	"weft/tunnel"
)

// errKernelCarries is why a type whose packets the kernel moves does not work between two namespaces.
var errKernelCarries = errors.New("the kernel would move the packets, and the underlay is in another " +
	"network namespace (--rootless, --tun-netns): " +
	"only udp, vxlan and auto, whose packets weft carries itself, work there")

// ErrNoRaw is why path raw is not possible for a process without rights over the underlay's namespace.
var ErrNoRaw = errors.New("path raw needs CAP_NET_RAW and CAP_NET_ADMIN where the underlay is, which an " +
	"ordinary user does not have")

// underlayKernel is the namespace that the underlay is in.
func (c BackendConfig) underlayKernel() *kernel.Kernel { return cmp.Or(c.Outside, c.Kernel) }

// away reports whether the underlay is in another namespace than the TUN.
func (c *Node) away() bool { return c.out != c.k }

// WorksElsewhere returns why the backend does not work with its underlay in another namespace than its TUN;
// nil if it does.
func (n Network) WorksElsewhere() error {
	if f := n.Facts(); f.Carrier == CarrierKernel || f.Direct || len(f.Commands) > 0 {
		return errKernelCarries
	}
	return nil
}

// unprivileged makes o what a process without rights over the underlay's namespace can have.
func unprivileged(o *plane.Options) error {
	o.Forwarding = plane.ForwardingOff
	if o.Path != tunnel.PathRaw {
		return nil
	}
	if !o.Auto {
		return errors.Join(ErrNoRaw, errors.New(`"Path":"auto" takes the best that is possible`))
	}
	o.Path = tunnel.PathSocket
	return nil
}

// closeMonitors ends both subscriptions.
func (c *Node) closeMonitors() {
	c.monitor.Close()
	if c.outside != nil {
		c.outside.Close()
	}
}
