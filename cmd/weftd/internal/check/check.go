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
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/doctor"
	"weft/cmd/internal/options"
	"weft/cmd/weftd/internal/etcdchild"
	"weft/cmd/weftd/internal/reach"
	"weft/cmd/weftd/internal/trust"
	"weft/lease"
	"weft/routing"
	"weft/routing/presence"
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

// Run prints to w what cfg means on this host. parse is the error of the command line and the environment, or
// nil. Run asks the store, or the API server, unless cfg.Offline is set; then it looks at nothing but what a
// start needs. Its error is ErrFaults.
func Run(ctx context.Context, cfg options.Config, parse error, w io.Writer) error {
	r := &report{remarks: cfg.Remarks()}
	r.remarks = append(r.remarks, cfg.Quiet()...)
	facts := doctor.Gather(ctx, doctor.Request{Offline: cfg.Offline,
		Settings: &doctor.Settings{Config: cfg, From: "the flags and variables given here", Err: parse,
			Given: true}})
	if cfg.Offline {
		r.remark("%s: was not asked (--offline)", facts.Store.What)
	}
	r.examine(cfg, facts)
	network := r.network(cfg, facts.Network)
	what, endpoints := "the store", cfg.StoreClient(slog.New(slog.DiscardHandler)).Endpoints
	if cfg.Kube.On {
		what, endpoints = "the API server", r.kube(cfg)
		r.askKube(ctx, cfg, network)
	} else {
		r.node(cfg)
	}
	if cfg.Embedded.On {
		_, err := etcdchild.Find()
		r.fault(err)
	}
	r.commands(cfg, network)
	r.published(cfg)
	r.backend(cfg, network, facts.Links.Underlay)
	switch {
	case cfg.Rootless.On || cfg.Rootless.TUNNetns != "":
		r.place(cfg, network)
	case cfg.Offline || cfg.Kube.On: // else doctor asked its endpoints, and looked at their addresses
		r.storeRoute(network, what, endpoints)
	}
	r.print(cfg, w)
	if len(r.faults) > 0 {
		return ErrFaults
	}
	return nil
}

// examine takes what weft doctor's checks find. A key that nobody reads is a fault here.
func (r *report) examine(cfg options.Config, f *doctor.Facts) {
	required, others := doctor.ExamineStart(f)
	if cfg.Offline {
		others = nil
	}
	noPattern := func(x string) bool { _, err := regexp.Compile(x); return err != nil }
	if slices.ContainsFunc(cfg.Underlay.Regexes, noPattern) { // which is among the faults of the settings
		required = slices.DeleteFunc(required, func(x doctor.Finding) bool { return x.ID == "interface" })
	}
	for _, x := range doctor.WorstFirst(required) {
		if x.Verdict == doctor.Warning && x.ID == "config-keys" {
			x.Verdict = doctor.Fault
		}
		r.finding(x)
	}
	for _, x := range doctor.WorstFirst(others) {
		if x.Verdict != doctor.Unknown {
			r.finding(x)
		}
	}
}

func (r *report) finding(x doctor.Finding) {
	if x.Verdict == doctor.Fault {
		r.fault(fmt.Errorf("%s: %s", x.ID, x))
		return
	}
	r.remark("%s, %s: %s", x.ID, x.Verdict, x)
}

// commands checks whether weftd would run the commands of the network configuration, and reports who can
// write to the store, which decides that.
func (r *report) commands(cfg options.Config, network routing.Network) {
	if len(network.Facts().Commands) > 0 {
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
		r.remark("store: %s: anybody who writes there can take any subnet, and be root here (--allow-extension)",
			why)
	default:
		r.remark("store: %s: anybody who writes there can take any subnet; weftd runs no commands of type "+
			"extension from there without --allow-extension", why)
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
		r.remark("node id: a random one at the first start, since there is no /etc/machine-id; it lasts as long "+
			"as %s does", cfg.CacheDir)
		return
	}
	r.remark("node id: %s (%s)", id, source)
}

// published checks whether anybody could send to the addresses that weftd would publish.
func (r *report) published(cfg options.Config) {
	for flag, a := range map[string]netip.Addr{"--public-ip": cfg.Underlay.PublicIP,
		"--public-ipv6": cfg.Underlay.PublicIPv6} {
		if a.IsValid() && (a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast()) {
			r.fault(fmt.Errorf("%s %s: no other host can send to it, and peers would not believe the record: want "+
				"an address at which they reach this host", flag, a))
		}
	}
}

// backend checks whether the backend of network could use its port over u, its controller and its commands.
func (r *report) backend(cfg options.Config, network routing.Network, u underlay.Link) {
	if network.BackendType == "" {
		return // it is not known
	}
	k, err := routing.OpenKernel()
	if err != nil {
		r.fault(err)
		return
	}
	defer func() { _ = k.Close() }() // it was only asked
	facts := network.Facts()
	if err := presence.PortFree(k, u, facts.Port, facts.Port6); errors.Is(err, unix.EACCES) {
		// a weftd that runs has the port
		r.fault(fmt.Errorf("network config: %w", err))
	}
	if facts.Controller && cfg.Hook.URL == "" {
		r.fault(routing.ErrNoController)
	}
	for _, c := range facts.Commands {
		words := strings.Fields(c.Command)
		if len(words) == 0 || strings.Contains(words[0], "$") {
			continue
		}
		if _, err := exec.LookPath(words[0]); err != nil {
			r.fault(fmt.Errorf("network config: Backend.%s: %w", c.Key, err))
		}
	}
}

// storeRoute checks whether the overlay of the configuration file, if one was named, would cut
// this host off from its store at endpoints. what is the store's name in messages.
func (r *report) storeRoute(network routing.Network, what string, endpoints []string) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	why, err := reach.Store(network.NetworkConfig, what, reach.Addrs(ctx, endpoints))
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
