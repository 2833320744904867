package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"weft/cmd/internal/control"
	"weft/cmd/internal/options"
	"weft/cmd/internal/records"
	"weft/cmd/internal/running"
	"weft/cmd/internal/statefiles"
	"weft/lease"
	"weft/lease/etcd"
)

// LeaseAPI has the questions of the lease commands, which the daemon or the store answers.
type LeaseAPI interface {
	Leases(ctx context.Context) (control.Leases, error)
	Release(ctx context.Context, r control.ReleaseRequest) (control.Released, error)
}

// LeaseFlags choose whom to ask.
type LeaseFlags struct {
	*App
	store *options.StoreFlags
}

func NewLeaseFlags(app *App) *LeaseFlags {
	return &LeaseFlags{App: app, store: options.NewStoreFlags()}
}

// BindStore adds the flags to the group of the lease commands.
func (f *LeaseFlags) BindStore(cmd *cobra.Command) {
	f.Bind(cmd)
	cmd.PersistentFlags().AddGoFlagSet(f.store.Set)
}

// Ask calls do with the daemon, or with the store if an --etcd- flag is given or no daemon
// answers; then it says so on stderr. If there is a daemon that is stuck, the store takes its
// place only for commands that read.
func (f *LeaseFlags) Ask(cmd *cobra.Command, reads bool, do func(LeaseAPI) error) error {
	var absent error
	if !f.storeGiven(cmd) {
		absent = do(f.Client())
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
		why := "nobody answers on " + f.Socket
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
func (f *LeaseFlags) storeOf(cmd *cobra.Command, absent error) (cfg etcd.Config, from string, err error) {
	log := slog.New(slog.DiscardHandler)
	if errors.Is(absent, control.ErrStuck) {
		if p, err := running.Read(f.Client().Listener(cmd.Context())); err == nil {
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

func (f *LeaseFlags) storeGiven(cmd *cobra.Command) bool {
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
		dir = UsualCacheDir
	}
	_, err := os.Lstat(filepath.Join(dir, statefiles.KubeNode))
	return err == nil
}

// OnlyLeases returns those of l that words name, all of them without words.
func OnlyLeases(l control.Leases, words []string) (_ control.Leases, err error) {
	if len(words) > 0 {
		l.Rejected = nil
		l.Leases, err = only(l.Leases, recordKeys, words)
	}
	return l, err
}

// CompleteOwners lists the owners of records for the shell, as the daemon knows them.
func (f *LeaseFlags) CompleteOwners(cmd *cobra.Command, given []string, _ string) ([]string,
	cobra.ShellCompDirective) {
	return completeNodes(cmd, given, recordKeys, func(ctx context.Context) ([]control.Record, error) {
		l, err := f.Client().Leases(ctx)
		return l.Leases, err
	})
}

// direct answers from the store itself, without a daemon.
type direct struct {
	store  lease.Store
	source string
}

// openStore connects to etcd at the first request. done closes it.
func openStore(c etcd.Config, warn func(string)) (api direct, done func(), err error) {
	warnings, err := c.Check()
	for _, w := range warnings {
		warn(w)
	}
	if err != nil {
		return direct{}, nil, err
	}
	s, err := etcd.New(c)
	if err != nil {
		return direct{}, nil, err
	}
	source := fmt.Sprintf("etcd at %s, prefix %s", strings.Join(s.Endpoints(), " "), c.Prefix)
	// nothing was written that a close could lose
	return direct{store: s, source: source}, func() { _ = s.Close() }, nil
}

func (d direct) Leases(ctx context.Context) (control.Leases, error) {
	l, err := records.List(ctx, d.store, d.source)
	if err != nil {
		return l, fmt.Errorf("%s: %w", d.source, err)
	}
	return l, nil
}

// Release refuses no record as the daemon's own, since no daemon runs here that could use it.
func (d direct) Release(ctx context.Context, r control.ReleaseRequest) (control.Released, error) {
	return records.Release(ctx, d.store, r, func(lease.Record) error { return nil })
}
