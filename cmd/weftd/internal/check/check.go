// Package check is weftd --check: it validates everything that weftd needs to start,
// prints the configuration in force with its sources, and changes nothing.
package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"weft/cmd/internal/options"
	"weft/cmd/weftd/internal/etcdchild"
	"weft/cmd/weftd/internal/reach"
	"weft/cmd/weftd/internal/trust"
	"weft/lease"
	"weft/routing"
	"weft/routing/underlay"
)

// ErrFaults ends a check that found something; the faults themselves were printed.
var ErrFaults = errors.New("the check found faults")

// report collects what the parts of the check found.
type report struct {
	remarks []string
	faults  []error
}

func (r *report) remark(format string, a ...any) {
	r.remarks = append(r.remarks, fmt.Sprintf(format, a...))
}
func (r *report) fault(err error) {
	if err != nil {
		r.faults = append(r.faults, err)
	}
}

// Run prints to w what cfg means on this host. parse is the error of the command line and
// the environment, or nil. Run asks the store, or the API server, unless cfg.Offline is set.
// Its error is ErrFaults.
func Run(ctx context.Context, cfg options.Config, parse error, w io.Writer) error {
	r := &report{remarks: cfg.Remarks()}
	r.remarks = append(r.remarks, cfg.Quiet()...)
	r.fault(parse)
	what, endpoints := "the store", []string(nil)
	var network lease.NetworkConfig
	if cfg.Kube.On {
		what, endpoints = "the API server", r.kube(cfg)
		network = r.kubeNetwork(cfg)
		r.askKube(ctx, cfg, network)
	} else {
		endpoints = r.store(cfg)
		r.node(cfg)
		network = r.network(ctx, cfg)
	}
	r.commands(cfg, network)
	r.published(cfg)
	r.underlay(cfg, network)
	if cfg.Rootless.On || cfg.Rootless.TUNNetns != "" {
		r.place(cfg, network)
	} else {
		have, err := capabilities()
		r.fault(err)
		r.privileges(have)
		r.tun(network)
		r.storeRoute(network, what, endpoints)
	}
	r.lookAround(ctx, cfg)
	r.print(cfg, w)
	if len(r.faults) > 0 {
		return ErrFaults
	}
	return nil
}

// store checks endpoints, TLS files and login, and returns the endpoints.
func (r *report) store(cfg options.Config) []string {
	client := cfg.StoreClient(slog.New(slog.DiscardHandler))
	warnings, err := client.Check()
	r.remarks = append(r.remarks, warnings...)
	r.fault(err)
	if cfg.Embedded.On {
		_, err := etcdchild.Find()
		r.fault(err)
	}
	return client.Endpoints
}

// commands checks whether weftd would run the commands of the network configuration, and reports who can
// write to the store, which decides that.
func (r *report) commands(cfg options.Config, network lease.NetworkConfig) {
	if len(routing.FactsOf(network).Commands) > 0 {
		if err := trust.Commands(cfg); err != nil {
			r.fault(fmt.Errorf("%w: %w", routing.ErrCommandsRefused, err))
		}
	}
	if cfg.Kube.On {
		return
	}
	why := trust.Doubt(cfg)
	switch {
	case why == "":
	case cfg.AllowExtension:
		r.remark("store: %s: whoever writes there can take any subnet, and be root here (--allow-extension)", why)
	default:
		r.remark("store: %s: whoever writes there can take any subnet; commands of type extension are not run from there without --allow-extension", why)
	}
}

// node finds the identity with which weftd would start, without storing it.
func (r *report) node(cfg options.Config) {
	o := lease.IdentityOptions{Given: cfg.NodeID, CacheDir: cfg.CacheDir, Part: cfg.IdentityPart()}
	stored := filepath.Join(cfg.CacheDir, lease.NodeFile)
	if _, err := os.Stat(stored); cfg.NodeID == "" && errors.Is(err, fs.ErrNotExist) {
		tmp, err := os.MkdirTemp("", "weftd-check-") // LoadIdentity stores what it derives
		if err != nil {
			r.fault(err)
			return
		}
		defer func() { _ = os.RemoveAll(tmp) }()
		o.CacheDir = tmp
	}
	id, source, err := lease.LoadIdentity(o)
	if err != nil {
		r.fault(err)
		return
	}
	if source == lease.IdentityRandom {
		r.remark("node id: a random one at the first start, since there is no /etc/machine-id; it lasts as long as %s does", cfg.CacheDir)
		return
	}
	r.remark("node id: %s (%s)", id, source)
}

// tun checks whether the kernel offers TUN devices, if the backend needs one or is not known. Opening
// /dev/net/tun makes no device.
func (r *report) tun(network lease.NetworkConfig) {
	facts := routing.FactsOf(network)
	switch t, feature := network.BackendType, facts.Feature; {
	case t == "" || facts.Carrier == routing.CarrierWeft:
	case facts.Carrier != routing.CarrierEither:
		r.remark("backend %s moves no packets itself: it needs no TUN device", t)
		if feature != nil {
			if err := feature.Probe(); errors.Is(err, feature.Missing) {
				r.fault(fmt.Errorf("backend %s: %w, and %s", t, err, feature.Required))
			}
		}
		return
	default:
		switch err := feature.Probe(); {
		case err == nil:
			r.remark("backend %s: this kernel has %s, so that no TUN device is needed", t, feature.Name)
			return
		case !errors.Is(err, feature.Missing):
			r.remark("backend %s: whether this kernel has %s is not known: %v", t, feature.Name, err)
			return
		default:
			r.remark("backend %s: packets would be carried in user space: %v", t, err)
		}
	}
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		r.fault(fmt.Errorf("%w: the user-space data plane needs it: load the module tun, run as root, and in a container pass the device in", err))
		return
	}
	_ = f.Close()
}

// guessed returns flannel's default families, for a network that is not known.
func guessed() lease.NetworkConfig { return lease.NetworkConfig{EnableIPv4: true} }

func (r *report) describe(network lease.NetworkConfig, from string) {
	r.remark("network config: %s, backend %s, from %s", lease.Subnets{V4: network.Network, V6: network.IPv6Network}, network.BackendType, from)
}

// underlay chooses the underlay as weftd would when it starts.
func (r *report) underlay(cfg options.Config, network lease.NetworkConfig) {
	for _, x := range cfg.Underlay.Regexes {
		if _, err := regexp.Compile(x); err != nil { // which is among the faults of the command line
			r.remark("underlay: was not chosen, since --iface-regex %q is no pattern", x)
			return
		}
	}
	k, err := routing.OpenKernel()
	if err != nil {
		r.fault(err)
		return
	}
	defer func() { _ = k.Close() }()
	var overlay []netip.Prefix
	for _, p := range []netip.Prefix{network.Network, network.IPv6Network} {
		if p.IsValid() {
			overlay = append(overlay, p)
		}
	}
	u, err := underlay.Choose(k, underlay.Options{
		Interfaces: cfg.Underlay.Ifaces, Regexes: cfg.Underlay.Regexes, CanReach: cfg.Underlay.CanReach,
		PublicIP: cfg.Underlay.PublicIP, PublicIPv6: cfg.Underlay.PublicIPv6,
		IPv4: network.EnableIPv4, IPv6: network.EnableIPv6, AllFamilies: true, Overlay: overlay,
	})
	if err != nil {
		r.fault(err)
		return
	}
	r.remark("underlay: %s, MTU %d, local %s, peers are told %s", u.Name, u.MTU, list(u.Addr4, u.Addr6), list(u.Ext4, u.Ext6))
	r.backend(cfg, network, k, u)
}

// storeRoute checks whether the overlay of the configuration file, if one was named, would cut
// this host off from its store at endpoints. what is the store's name in messages.
func (r *report) storeRoute(network lease.NetworkConfig, what string, endpoints []string) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	why, err := reach.Store(network, what, reach.Addrs(ctx, endpoints))
	r.fault(err)
	if why != "" {
		r.fault(errors.New(why))
	}
}

// lookupTimeout bounds how long the store's names may take to resolve.
const lookupTimeout = 2 * time.Second

func (r *report) print(cfg options.Config, w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "SETTING\tSOURCE\tVALUE\n")
	for _, s := range cfg.Settings {
		fmt.Fprintf(t, "%s\t%s\t%s\n", s.Name, s.Source, s.Value)
	}
	_ = t.Flush() // w is standard output, and may have been closed
	fmt.Fprintln(w)
	for _, s := range r.remarks {
		fmt.Fprintln(w, s)
	}
	if len(r.faults) == 0 {
		fmt.Fprintln(w, "no faults")
		return
	}
	fmt.Fprintln(w, "\nFAULTS")
	said := map[string]bool{options.ErrUsage.Error(): true} // a hint, no fault
	for _, err := range r.faults {
		for line := range strings.Lines(err.Error()) {
			if line = strings.TrimSpace(line); !said[line] {
				said[line] = true
				fmt.Fprintf(w, "- %s\n", line)
			}
		}
	}
}

func list(addrs ...netip.Addr) string {
	var out []string
	for _, a := range addrs {
		if a.IsValid() {
			out = append(out, a.String())
		}
	}
	return strings.Join(out, " ")
}
