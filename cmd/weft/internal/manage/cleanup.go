package manage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
	"weft/cmd/weft/internal/cli"
	"weft/lease/kube"
)

// cleanupFlags are those of weft cleanup.
type cleanupFlags struct {
	*cli.App
	dryRun, force, flannel, files bool
	rules, wait, hold             bool
	cacheDir, subnetFile          string
	kube                          kubeFlags
	// running says that the weftd at the socket answers, during a dry run: what is open is its, and would be
	// gone with it.
	running bool
}

// cleaned has what --json prints.
type cleaned struct {
	DryRun  bool     `json:"dryRun"`
	Removed []string `json:"removed"`
	// Left lists objects that have flannel's names and not our mark, and so were left.
	Left []string `json:"left,omitempty"`
	// Kept lists what may be weft's and stays, with the reason.
	Kept []string `json:"kept,omitempty"`
}

func cleanupCommand(app *cli.App) *cobra.Command {
	f := &cleanupFlags{App: app}
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what weftd leaves on this host: devices, routes and traffic rules",
		Long: "Remove what weftd leaves on this host, so that it is as if weftd had never run: devices " +
			"flannel.*, flannel*, weft-tx4 and\n" +
			"weft-tx6 with the alias weft; routes of protocol 119 by these devices, or inside the networks that the " +
			"subnet file and the\n" +
			"last known state name; and rules with weft's comments: in tables weft, flannel-ipv4, flannel-ipv6 and " +
			"weft-raw-* of nftables,\n" +
			"and in the chains FLANNEL-FWD and FLANNEL-POSTRTG of iptables in both flavours. What another network " +
			"of weft's has on\n" +
			"this host stays: give --subnet-file and --cache-dir of the one to remove. Pods lose the overlay. A " +
			"line is printed for each object; where there is nothing left, nothing happens. What lacks\n" +
			"weft's mark stays, also a living flannel's beside it, and what only has a name like weft's. --flannel " +
			"takes flannel's too.\n" +
			"The holder of pods' descriptors, which waits for the next weftd, is told to end.\n" +
			"The underlay device's feature rx-udp-gro-forwarding is off again if weftd had turned it on.\n\n" +
			"--rules takes nothing that packets need: only what a flannel that takes over does not adopt and leaves " +
			"there, which are\n" +
			"the rules about the overlay's port, in iptables those for which it has its own, and the TUNs that no " +
			"weftd has open. A\n" +
			"flannel beside such a TUN gets its route.\n" +
			"In a pod with NODE_NAME, or with --kubeconfig-file, weft's annotation goes from the Node object too.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f.Bind(cmd)
	fs := cmd.Flags()
	fs.BoolVar(&f.dryRun, "dry-run", false, "only say what would be removed")
	fs.BoolVar(&f.force, "force", false, "also while weftd runs, which puts back what it misses")
	fs.BoolVar(&f.flannel, "flannel", false, "also devices and rules of flannel's names that weft has not "+
		"made or taken over")
	fs.BoolVar(&f.files, "files", false, "also the subnet file, the node's identity and the last known peers; "+
		"the next weftd here is a new node")
	fs.StringVar(&f.cacheDir, "cache-dir", cli.UsualCacheDir,
		"weftd's `directory`: what it noted of the underlay's device, the networks that it had, and for --files; "+
			"data of an embedded etcd stay")
	fs.StringVar(&f.subnetFile, "subnet-file", "/run/flannel/subnet.env",
		"weftd's subnet `file`: the networks that it had, and for --files")
	fs.BoolVar(&f.rules, "rules", false, "only the rules that keep pods and strangers off the overlay's port, "+
		"those that a living flannel has itself, and TUNs without a weftd; other devices, routes and rules stay, "+
		"and packets go on")
	fs.BoolVar(&f.wait, "wait", false, "wait until weftd does not answer and its TUN is closed, however long "+
		"that takes; another network's TUN is not waited for")
	fs.BoolVar(&f.hold, "hold", false, "when done, wait for a signal, as the container of a DaemonSet has to")
	f.kube.bind(fs)
	return cmd
}

func (f *cleanupFlags) run(ctx context.Context, w io.Writer) error {
	if f.rules && (f.flannel || f.files) {
		return cli.Usagef("--rules takes only what no flannel adopts: leave --flannel and --files out")
	}
	if f.wait {
		if err := f.gone(ctx); err != nil {
			return err
		}
	}
	if !f.force && !f.dryRun {
		switch _, err := f.Client().Status(ctx); {
		case err == nil:
			return fmt.Errorf("weftd runs, and would put everything back (it answers on %s): stop it first, or use "+
				"--force", f.Socket)
		case !errors.Is(err, control.ErrNoDaemon):
			return fmt.Errorf("whether weftd runs is not known: %w; stop it, or use --force", err)
		}
	}
	if f.dryRun {
		_, err := f.Client().Status(ctx)
		f.running = err == nil
	}
	c, err := f.clean(ctx)
	err = errors.Join(err, f.forget(ctx, &c))
	err = errors.Join(f.Print(w, c, func(w io.Writer) error { return f.printCleaned(w, c) }), err)
	if err == nil && f.hold {
		<-ctx.Done()
	}
	return err
}

// goneEvery is the time between checks whether a weftd still runs.
const goneEvery = time.Second

// gone waits until weftd does not answer and no process has its TUN open.
func (f *cleanupFlags) gone(ctx context.Context) error {
	for {
		if _, err := f.Client().Status(ctx); errors.Is(err, control.ErrNoDaemon) {
			if busy, err := f.carrying(); err != nil || !busy {
				return err
			}
		}
		t := time.NewTimer(goneEvery)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
	}
}

func (f *cleanupFlags) printCleaned(w io.Writer, c cleaned) error {
	verb := "removed"
	if f.dryRun {
		verb = "would remove"
	}
	var b strings.Builder
	for _, line := range c.Removed {
		fmt.Fprintf(&b, "%s %s\n", verb, cli.Clean(line))
	}
	for _, line := range c.Left {
		fmt.Fprintf(&b, "left %s: it is not weft's; --flannel takes it too\n", cli.Clean(line))
	}
	for _, line := range c.Kept {
		fmt.Fprintf(&b, "kept %s\n", cli.Clean(line))
	}
	if len(c.Removed)+len(c.Kept) == 0 {
		what := "nothing"
		if f.rules {
			what = "no rule"
		}
		fmt.Fprintln(&b, what+" of weft's is left on this host")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cleanHolder has the holder drop what it keeps for the next weftd, and end.
func (f *cleanupFlags) cleanHolder(ctx context.Context, c *cleaned) error {
	ask := custody.End
	if f.dryRun {
		ask = custody.Look
	}
	r, ok, err := ask(ctx, custody.SocketFor(f.Socket))
	if err != nil {
		return fmt.Errorf("end the holder of pods' descriptors at %s: %w; its --holder-timeout ends it",
			custody.SocketFor(f.Socket), err)
	}
	if ok {
		c.Removed = append(c.Removed, fmt.Sprintf("holder, pid %d, with %d descriptors of pods and ports", r.PID,
			r.Descriptors))
	}
	return nil
}

// kubeFlags say how weft cleanup finds the Node object of this host.
type kubeFlags kube.Config

func (k *kubeFlags) bind(fs *pflag.FlagSet) {
	fs.StringVar(&k.Kubeconfig, "kubeconfig-file", "",
		"`file` for the API server, to remove weft's annotation from the Node object; in a pod its service account")
	fs.StringVar(&k.APIURL, "kube-api-url", "", "`URL` of the API server, instead of the file's")
	fs.StringVar(&k.AnnotationPrefix, "kube-annotation-prefix", kube.DefaultPrefix, "weftd's `prefix`")
	fs.StringVar(&k.NodeName, "node-name", os.Getenv("NODE_NAME"), "the Node object's `name`")
}

// given reports whether the flags or the environment say which Node object is this host's, and how to reach
// the API.
func (k *kubeFlags) given() bool {
	return k.Kubeconfig != "" || k.APIURL != "" || k.NodeName != "" && os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// forget removes weft's annotation from this host's Node object.
func (f *cleanupFlags) forget(ctx context.Context, c *cleaned) error {
	if !f.kube.given() {
		return nil
	}
	client, err := kube.New(kube.Config(f.kube))
	if err != nil {
		return fmt.Errorf("weft's annotation of the Node object: %w", err)
	}
	defer func() { _ = client.Close() }() // nothing was written that a close could lose
	annotation, err := client.Forget(ctx, f.dryRun)
	if err != nil {
		return fmt.Errorf("weft's annotation of the Node object: %w", err)
	}
	if annotation != "" {
		c.Removed = append(c.Removed, fmt.Sprintf("annotation %s of node %s", annotation, f.kube.NodeName))
	}
	return nil
}
