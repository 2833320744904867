package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/cmd/internal/control"
	"weft/cmd/internal/options"
	"weft/cmd/internal/running"
	"weft/cmd/internal/statefiles"
	"weft/lease"
	"weft/lease/etcd"
)

// leaseAPI has the questions of the lease commands, which the daemon or the store answers.
type leaseAPI interface {
	Leases(ctx context.Context) (control.Leases, error)
	Release(ctx context.Context, r control.ReleaseRequest) (control.Released, error)
}

// leaseFlags choose whom to ask.
type leaseFlags struct {
	common
	store *options.StoreFlags
}

func leaseCommand() *cobra.Command {
	f := &leaseFlags{store: options.NewStoreFlags()}
	cmd := &cobra.Command{
		Use:   "lease",
		Short: "List or release the subnets that nodes hold",
		Long: "List or release the subnets that nodes hold.\n\n" +
			"The daemon is asked over its control socket. If none answers (for list also one that is stopped), or " +
			"an --etcd-… flag is given,\n" +
			"the store is asked: that of a weftd which is stopped, else that of those flags, which may come from " +
			"WEFTD_… and FLANNELD_… variables, as\n" +
			"for weftd, else that of /etc/weft/weftd.env.\n" +
			"In Kubernetes only the daemon is asked: subnets are the podCIDRs of Node objects, which kubectl shows.",
	}
	f.bind(cmd)
	cmd.PersistentFlags().AddGoFlagSet(f.store.Set)
	cmd.AddCommand(f.listCommand(), f.releaseCommand())
	return cmd
}

func (f *leaseFlags) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list [NODE…]",
		Short: "List every record in the store, also those that are not believed",
		Long: "List every record in the store, also those that are not believed, or those of the " +
			"nodes that are named.\n\n" + nodeArgument,
		Example: "  weft lease list\n  weft lease list db1\n  weft lease list --json --etcd-endpoints " +
			"https://192.0.2.5:2379",
		ValidArgsFunction: f.completeOwners,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.ask(cmd, true, func(api leaseAPI) error {
				l, err := api.Leases(cmd.Context())
				if err == nil {
					l, err = onlyLeases(l, args)
				}
				if err != nil {
					return err
				}
				if f.json {
					return printJSON(cmd.OutOrStdout(), leasesDocument{schema1(), l})
				}
				return printLeases(cmd.OutOrStdout(), l, time.Now())
			})
		},
	}
}

func (f *leaseFlags) releaseCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "release SUBNET|NODE",
		Short: "Delete one record, so that another node may have the subnet",
		Long: "Delete one record, so that another node may have the subnet. The record is deleted only if it is " +
			"still\n" +
			"the one that was read. The subnet of the running daemon itself is deleted only with --force.\n\n" +
			"The record is that of the subnet, or of the one node with that name, id or address.",
		Example:           "  weft lease release 10.42.7.0/24\n  weft lease release db1",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeOwners,
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.Contains(args[0], "/") || subnetWord(args[0]) {
				if err := checkSubnet(args[0]); err != nil {
					return asUsage(err)
				}
			}
			return f.ask(cmd, false, func(api leaseAPI) error {
				subnet, err := recordOf(cmd.Context(), api, args[0])
				if err != nil {
					return err
				}
				d, err := api.Release(cmd.Context(), control.ReleaseRequest{Subnet: subnet, Force: force})
				if err != nil {
					return err
				}
				if f.json {
					return printJSON(cmd.OutOrStdout(), releasedDocument{schema1(), d})
				}
				r := d.Record
				fmt.Fprintf(cmd.OutOrStdout(), "released %s: it was held by %s at %s, backend %s, %s\n",
					join(r.Subnet, r.IPv6Subnet),
					owner(r), join(r.PublicIP, r.PublicIPv6), orDash(r.Backend), remaining(r, time.Now()))
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also delete the record of this very node while it runs")
	return cmd
}

// ask calls do with the daemon, or with the store if an --etcd- flag is given or no daemon
// answers; then it says so on stderr. If there is a daemon that is stuck, the store takes its
// place only for commands that read.
func (f *leaseFlags) ask(cmd *cobra.Command, reads bool, do func(leaseAPI) error) error {
	var absent error
	if !f.storeGiven(cmd) {
		absent = do(f.client())
		stuck := reads && errors.Is(absent, control.ErrStuck) // a command that writes may have reached the daemon
		if !errors.Is(absent, control.ErrNoDaemon) && !stuck {
			return absent
		}
		if cmd.Flags().Changed("control-socket") && !stuck {
			return absent // the user named this daemon's socket
		}
	}
	cfg, from, err := f.storeOf(cmd, absent)
	if err != nil {
		return errors.Join(absent, err)
	}
	if absent != nil {
		why := "nobody answers on " + f.socket
		if errors.Is(absent, control.ErrStuck) {
			why = absent.Error()
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "weft: %s; asking etcd at %s%s\n", why, options.RedactAll(cfg.Endpoints),
			from)
	}
	api, done, err := openStore(cfg, func(w string) { fmt.Fprintln(cmd.ErrOrStderr(), "weft: warning:", w) })
	if err != nil {
		return err
	}
	defer done()
	return do(api)
}

// storeOf returns the store to ask: that of the flags, else that of a weftd which runs but does not answer
// (absent says so), else that of the variables, else that of the unit's. from says in words which it is, if
// that is not plain.
func (f *leaseFlags) storeOf(cmd *cobra.Command, absent error) (cfg etcd.Config, from string, err error) {
	log := slog.New(slog.DiscardHandler)
	if errors.Is(absent, control.ErrStuck) {
		if p, err := running.Read(f.client().Listener(cmd.Context())); err == nil {
			s, err := p.Settings()
			if s.Kube.On {
				return cfg, "", errors.New(kubectlInstead)
			}
			for _, file := range []*string{&s.Store.CAFile, &s.Store.CertFile, &s.Store.KeyFile, &s.Store.PasswordFile,
				&s.Embedded.Dir} {
				if *file != "" {
					*file = p.Path(*file)
				}
			}
			return s.StoreClient(log), ", its store", err
		}
		if cmd.Flags().Changed("control-socket") {
			return cfg, "", errors.New("how it was started cannot be read: name its store by --etcd-endpoints")
		}
	}
	if absent != nil && inCluster() {
		return cfg, "", errors.New(kubectlInstead)
	}
	environ := os.Environ()
	if absent != nil && !running.Mentions(environ) {
		if of, err := running.UnitVariables(); err == nil {
			environ, from = append(of, environ...), ", by "+running.UnitFile
		}
	}
	s, err := f.store.Store(cmd.Flags().Changed, environ)
	return s.Etcd(log), from, err
}

func (f *leaseFlags) storeGiven(cmd *cobra.Command) bool {
	given := false
	f.store.Set.VisitAll(func(g *flag.Flag) { given = given || cmd.Flags().Changed(g.Name) })
	return given
}

// kubectlInstead says what to do without a daemon in a cluster that assigns the subnets.
const kubectlInstead = "this is a node of a Kubernetes cluster, where subnets are the podCIDRs of Node " +
	"objects: " +
	"kubectl get nodes -o custom-columns=NODE:.metadata.name,SUBNETS:.spec.podCIDRs lists them, and kubectl " +
	"delete node NODE gives one back"

// inCluster reports whether the daemon of this host takes its subnet from a Kubernetes cluster,
// as far as its variables and what it left behind tell.
func inCluster() bool {
	for _, name := range []string{"WEFTD_KUBE_SUBNET_MGR", "FLANNELD_KUBE_SUBNET_MGR"} {
		if on, err := strconv.ParseBool(os.Getenv(name)); err == nil {
			return on
		}
	}
	dir := os.Getenv("WEFTD_CACHE_DIR")
	if dir == "" {
		dir = usualCacheDir
	}
	_, err := os.Lstat(filepath.Join(dir, statefiles.KubeNode))
	return err == nil
}

func printLeases(w io.Writer, l control.Leases, now time.Time) error {
	if l.Network != "" {
		fmt.Fprintf(w, "network %s, %s, read from %s\n\n", clean(l.Network), count(len(l.Leases), "record"),
			clean(l.Source))
	}
	// In Kubernetes a record has neither an end nor a revision of its own.
	lives := len(l.Leases) == 0 || slices.ContainsFunc(l.Leases, func(r control.Record) bool {
		return r.Revision != 0 || !r.Expires.IsZero()
	})
	id := idColumn(l.Leases, func(r control.Record) (string, string) { return cmp.Or(r.Name, r.Node), r.Node })
	head := "SUBNET\tNODE\t" + id.heading + "PUBLIC IP\tBACKEND\t"
	if lives {
		head += "ENDS IN\tREVISION\t"
	}
	t := newTable(w)
	fmt.Fprintln(t, head)
	for _, r := range l.Leases {
		name := cmp.Or(r.Name, r.Node)
		fmt.Fprintf(t, "%s\t%s\t%s%s\t%s\t", join(r.Subnet, r.IPv6Subnet), orDash(name), id.cell(name, r.Node),
			join(r.PublicIP, r.PublicIPv6), orDash(r.Backend))
		if lives {
			fmt.Fprintf(t, "%s\t%d\t", ends(r.Expires, r.Reservation, now), r.Revision)
		}
		if r.Own {
			fmt.Fprint(t, "this node")
		}
		fmt.Fprintln(t)
	}
	if len(l.Rejected) > 0 {
		fmt.Fprintf(t, "\nNOT BELIEVED\tREASON\tDETAIL\n")
		for _, r := range l.Rejected {
			fmt.Fprintf(t, "%s\t%s\t%s\n", clean(r.Key), clean(string(r.Reason)), orDash(r.Detail))
		}
	}
	return t.Flush()
}

func owner(r control.Record) string {
	if r.Node == "" && r.Name == "" {
		return "a node without identity (flannel's)"
	}
	return "node " + clean(nodeText(r.Name, r.Node))
}

func remaining(r control.Record, now time.Time) string {
	switch {
	case r.Reservation:
		return "reserved without an end"
	case r.Expires.IsZero():
		return "its end is not known"
	}
	return duration(r.Expires.Sub(now)) + " were left"
}

// checkSubnet explains what is wrong with the argument, before the daemon or the store is asked.
func checkSubnet(text string) error {
	if p, err := netip.ParsePrefix(text); err == nil && p != p.Masked() {
		return fmt.Errorf("%s is an address in a subnet: did you mean %s?", p, p.Masked())
	}
	if _, err := lease.ParseSubnets(text); err != nil {
		return fmt.Errorf("%w: want a subnet as weft lease list shows it, such as 10.1.2.0/24", err)
	}
	return nil
}

// subnetWord reports whether text is a subnet, in any way in which one is written.
func subnetWord(text string) bool {
	_, err := lease.ParseSubnets(text)
	return err == nil
}

// recordOf returns the subnet of the record that word names.
func recordOf(ctx context.Context, api leaseAPI, word string) (string, error) {
	if subnetWord(word) {
		return word, nil
	}
	l, err := api.Leases(ctx)
	if err == nil {
		l, err = onlyLeases(l, []string{word})
	}
	if err != nil {
		return "", err
	}
	return lease.Subnets{V4: l.Leases[0].Subnet, V6: l.Leases[0].IPv6Subnet}.String(), nil
}

// onlyLeases returns those of l that words name, all of them without words.
func onlyLeases(l control.Leases, words []string) (control.Leases, error) {
	if len(words) == 0 {
		return l, nil
	}
	keys := leaseKeys(l)
	out := l
	out.Leases, out.Rejected = []control.Record{}, nil
	for _, w := range words {
		i, err := findNode(keys, w)
		if err != nil {
			return out, err
		}
		out.Leases = append(out.Leases, l.Leases[i])
	}
	return out, nil
}

func leaseKeys(l control.Leases) (keys []nodeKeys) {
	for _, r := range l.Leases {
		keys = append(keys, recordKeys(r))
	}
	return keys
}

// completeOwners lists the owners of records for the shell, as the daemon knows them.
func (f *leaseFlags) completeOwners(cmd *cobra.Command, given []string, _ string) ([]string,
	cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	l, err := f.client().Leases(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completions(leaseKeys(l), given), cobra.ShellCompDirectiveNoFileComp
}
