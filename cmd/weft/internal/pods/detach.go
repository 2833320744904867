package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"weft/cmd/internal/hostlocal"
	"weft/cmd/internal/podport"
	"weft/cmd/internal/podtun"
	"weft/cmd/internal/socket"
	"weft/cmd/weft/internal/cli"
)

func detachCommand(app *cli.App) *cobra.Command {
	f := podFlags{App: app}
	cmd := &cobra.Command{
		Use:   "detach (--pid PID | --netns PATH | POD)",
		Short: "Take a network namespace out of the overlay again",
		Long: "Take a network namespace that weft attach has joined out of the overlay: its interface is " +
			"deleted, and its addresses are free.\n\n" +
			"POD is the id, the name or an address of a pod that weft pods shows. It serves where the namespace is " +
			"gone. To detach what is\n" +
			"not attached changes nothing and succeeds, so that it can be repeated.",
		Example: "  weft detach --netns /run/netns/web\n  weft detach --pid 4711 --name weft0\n  weft detach " +
			"10.42.1.20",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) > 0) == (f.pid != 0 || f.netns != "") {
				return cli.Usagef("name the pod once: by --pid, by --netns or by what weft pods shows")
			}
			return f.detach(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	f.bindPod(cmd)
	cmd.ValidArgsFunction = f.completePods
	return cmd
}

func (f *podFlags) detach(ctx context.Context, w io.Writer, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, attachTime)
	defer cancel()
	var p pod
	store := f.store()
	if len(args) > 0 {
		known, err := f.port().Pods(ctx)
		if err != nil {
			return err
		}
		found, err := findPod(known.Pods, args[0])
		if err != nil {
			return err
		}
		p = pod{path: found.Netns, label: found.Name, key: found.Key}
		if found.By != podport.ByWeft {
			return fmt.Errorf("%s was attached by %s, which has to detach it: delete the pod",
				cli.Clean(found.Name),
				cli.Clean(found.By))
		}
		if r := found.Reservation; r != nil {
			store = hostlocal.Store{Dir: r.Dir, Network: r.Network}
		}
	} else {
		var err error
		if p, err = f.find(); err != nil {
			return err
		}
	}
	gone, err := f.port().Detach(ctx, p.key)
	unknown := errors.Is(err, socket.ErrNotFound)
	if err != nil && !unknown {
		return err
	}
	holder := hostlocal.Holder{Container: p.key.ID, Interface: p.key.Interface}
	if had, _ := store.Lookup(holder); unknown && len(had) == 0 { // an interface of that name is somebody else's
		if f.JSON {
			return cli.PrintDocument(w, podport.Pod{Request: podport.Request{Key: p.key}})
		}
		fmt.Fprintf(w, "%s is not attached\n", cli.Clean(p.label))
		return nil
	}
	// weftd has let the device go; it goes by hand too where another process still has its descriptor.
	if p.inNow(p.key.ID) {
		if _, err := podtun.Do(ctx, podtun.Task{What: podtun.TaskRemove,
			Spec: podtun.Spec{Netns: p.path, Name: p.key.Interface}}, helper()); err != nil {
			return fmt.Errorf("weftd has detached it, but its interface is there still: %w", err)
		}
	}
	freed, err := store.Release(ctx, holder)
	if err != nil {
		return fmt.Errorf("it is detached, but its addresses stay reserved: %w", err)
	}
	if len(gone.Addresses) == 0 {
		gone.Key, gone.Addresses = p.key, freed
	}
	if f.JSON {
		return cli.PrintDocument(w, gone)
	}
	fmt.Fprintf(w, "%s is detached: %s free\n", cli.Clean(p.label), cli.Join(freed...))
	return nil
}

// inNow reports whether the path leads to the namespace that the id was made for: a process' number may be
// another one's by now.
func (p pod) inNow(id string) bool {
	f := podFlags{netns: p.path, iface: p.key.Interface}
	now, err := f.find()
	return err == nil && now.key.ID == id
}

// findPod is the pod that text names: by id, name or address.
func findPod(pods []podport.Pod, text string) (podport.Pod, error) {
	var found []podport.Pod
	for _, p := range pods {
		if p.ID == text || p.Name == text || slices.ContainsFunc(p.Addresses, func(a netip.Addr) bool {
			return a.String() == text
		}) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return podport.Pod{}, fmt.Errorf("no pod %q is attached directly: weft pods lists those that are",
			cli.Clean(text))
	case 1:
		return found[0], nil
	}
	return podport.Pod{}, fmt.Errorf("%d pods are called %q: name one by an address", len(found),
		cli.Clean(text))
}

// completePods offers what detach takes for an argument.
func (f *podFlags) completePods(cmd *cobra.Command, args []string, _ string) ([]string,
	cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	known, err := f.port().Pods(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, p := range known.Pods {
		for _, a := range p.Addresses {
			out = append(out, cobra.CompletionWithDesc(a.String(), cli.Clean(p.Name)))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
