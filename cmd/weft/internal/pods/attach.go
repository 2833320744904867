package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weft/cmd/internal/hostlocal"
	"weft/cmd/internal/options"
	"weft/cmd/internal/podport"
	"weft/cmd/internal/podtun"
	"weft/cmd/internal/socket"
	"weft/cmd/weft/internal/cli"
)

// podFlags name an interface of a pod, and where its addresses are reserved.
type podFlags struct {
	*cli.App
	pid       int
	netns     string
	iface     string
	network   string
	directory string
}

func (f *podFlags) bindPod(cmd *cobra.Command) {
	f.Bind(cmd)
	fs := cmd.Flags()
	fs.IntVar(&f.pid, "pid", 0, "the pod is the network namespace of this process")
	fs.StringVar(&f.netns, "netns", "", "the pod is the network namespace at this path, such as /run/netns/web")
	fs.StringVar(&f.iface, "name", "eth0", "name of the interface in the pod")
	fs.StringVar(&f.network, "network", "cbr0",
		"name of the network in which addresses are reserved: that of the CNI configuration, so that all pods of "+
			"the node share them")
	fs.StringVar(&f.directory, "reservations", "",
		"directory of the reservations, host-local's dataDir (default $"+reservationsVariable+", else "+
			hostlocal.DefaultDir+"; without root weft/HOSTNAME/networks in $XDG_STATE_HOME)")
	cmd.MarkFlagsMutuallyExclusive("pid", "netns")
}

// attachFlags are those of weft attach.
type attachFlags struct {
	podFlags
	label     string
	addresses []string
	routes    string
	mtu       int
}

func attachCommand(app *cli.App) *cobra.Command {
	f := attachFlags{podFlags: podFlags{App: app}}
	cmd := &cobra.Command{
		Use:   "attach (--pid PID | --netns PATH)",
		Short: "Join a network namespace to the overlay, without a bridge: its interface is a port of weftd",
		Long: "Join a network namespace to the overlay. It gets a TUN whose other end is a port of weftd's data " +
			"plane, with addresses of this\n" +
			"node's subnets, and no bridge between. The addresses are reserved where host-local reserves those of " +
			"the pods on the bridge.\n\n" +
			"The namespace's way out is the overlay's host, unless it has a default route already, as with " +
			"slirp4netns or pasta: then only\n" +
			"the overlay's network leads there (--routes). When the namespace ends, weftd forgets it and frees its " +
			"addresses.\n\n" +
			"To attach what is attached already changes nothing. After a restart of weftd that has lost the pod it " +
			"mends it, with the same\n" +
			"addresses. Rules of the host, such as those of a NetworkPolicy, do not see the packets between pods " +
			"that are attached so.\n\n" +
			"It runs as the user that weftd runs as. The namespace of an ordinary user's process is entered with " +
			"nsenter, where this\n" +
			"process may not.",
		Example: "  weft attach --netns /run/netns/web\n  weft attach --pid 4711 --name weft0 --address " +
			"10.42.1.20\n  unshare -Urn sleep 1h & weft attach --pid $!\n  weft attach --netns /run/netns/web " +
			"--json | jq -r '.addresses[]'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f.bindPod(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.label, "pod", "", "what people call the pod (default the namespace's name, or the process)")
	fs.StringSliceVar(&f.addresses, "address", []string{"auto"},
		"address of the pod, or one of each family; auto is a free one of each family that the node has")
	fs.StringVar(&f.routes, "routes", "auto",
		"what leads into the overlay: auto, default (everything), network (the overlay's network) or none")
	fs.IntVar(&f.mtu, "mtu", 0, "MTU of the interface in bytes (default the overlay's)")
	cmd.MarkFlagsOneRequired("pid", "netns")
	cli.CompleteFlags(cmd, map[string]cli.Completer{"routes": cli.OneOf("auto", "default", "network",
		"none")})
	return cmd
}

// insideCommand is what weft attach has executed in the pod's namespaces.
func insideCommand() *cobra.Command {
	return &cobra.Command{
		Use: "attach-inside", Hidden: true, Args: cobra.NoArgs,
		Short: "Do the part of weft attach that is done in the pod's namespaces",
		RunE:  func(cmd *cobra.Command, _ []string) error { return podtun.Inside(cmd.InOrStdin()) },
	}
}

// pod is a namespace that flags name.
type pod struct {
	path  string
	label string
	key   podport.Key
}

// find resolves the flags. The error says why there is no such pod.
func (f *podFlags) find() (pod, error) {
	p := pod{path: f.netns, label: filepath.Base(f.netns)}
	if f.pid != 0 || f.netns == "" {
		if f.pid < 1 {
			return p, cli.Usagef("--pid %d: want the number of a process", f.pid)
		}
		p.path, p.label = fmt.Sprintf("/proc/%d/ns/net", f.pid), fmt.Sprintf("pid %d", f.pid)
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", f.pid)); err == nil {
			p.label = fmt.Sprintf("%s (pid %d)", cli.Clean(strings.TrimSpace(string(name))), f.pid)
		}
	} else if abs, err := filepath.Abs(f.netns); err == nil {
		p.path = abs
	}
	if err := podport.CheckInterface(f.iface); err != nil {
		return p, cli.Usagef("--name: %w", err)
	}
	own, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return p, fmt.Errorf("this process' own network namespace cannot be told: %w", err)
	}
	info, err := os.Stat(p.path)
	for until := time.Now().Add(settling); err == nil && f.pid != 0 && os.SameFile(info, own) &&
		time.Now().Before(until); info, err = os.Stat(p.path) {
		time.Sleep(settling / 50)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && f.pid != 0:
		return p, fmt.Errorf("there is no process %d: it has ended, it is of another PID namespace, or another "+
			"user's that /proc hides (hidepid)", f.pid)
	case errors.Is(err, fs.ErrNotExist):
		return p,
			fmt.Errorf("there is no %s: ip netns list shows the named ones, and --pid takes that of a process", p.path)
	case errors.Is(err, fs.ErrPermission):
		return p, fmt.Errorf("%w: it is another user's: run this as that user, for a weftd of that user's; or the "+
			"process has executed a set-user-ID program: name another one of the pod (lsns --type net)", err)
	case err != nil:
		return p, err
	case os.SameFile(info, own):
		return p, fmt.Errorf("%s is the network namespace of this host itself, which has the overlay already: "+
			"name a pod's", p.path)
	}
	var magic unix.Statfs_t
	st, ok := info.Sys().(*syscall.Stat_t)
	if err := unix.Statfs(p.path, &magic); err != nil || magic.Type != unix.NSFS_MAGIC || !ok {
		return p, fmt.Errorf("%s is no namespace: ip netns list shows the named ones", p.path)
	}
	p.key = podport.Key{ID: fmt.Sprintf("netns-%d", st.Ino), Interface: f.iface}
	return p, nil
}

// settling is how long a process may take to enter a namespace of its own: unshare in a shell's background
// has mostly not begun when the next command has.
const settling = time.Second

// store is where addresses are reserved.
func (f *podFlags) store() hostlocal.Store {
	dir := f.directory
	if dir == "" {
		dir = reservations(os.Geteuid(), os.Getenv)
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return hostlocal.Store{Dir: dir, Network: f.network}
}

// reservationsVariable names the directory of the reservations, as a lab does, whose nodes share a machine.
const reservationsVariable = "WEFT_RESERVATIONS"

// reservations is the directory of the reservations unless one is named: the variable's, else host-local's,
// or without root one beside the state of the user's own weftd.
func reservations(uid int, env func(string) string) string {
	if dir := env(reservationsVariable); filepath.IsAbs(dir) {
		return dir
	}
	host, err := os.Hostname()
	if uid == 0 || err != nil {
		return hostlocal.DefaultDir
	}
	dirs, err := options.UserDirs(env, uid, host)
	if err != nil { // the directory of root, which it may not change, is said with what to do
		return hostlocal.DefaultDir
	}
	return filepath.Join(dirs.State, "networks")
}

func (f *podFlags) port() podport.Client { return podport.Client{Socket: f.Socket} }

// helper is the command that does a part of this in the pod's namespaces. It is named by its path: nsenter
// executes it, whose own program /proc/self/exe is then.
func helper() []string {
	program, err := os.Executable()
	if err != nil { // /proc is not there, without which no pod was found
		program = "weft"
	}
	return []string{program, "attach-inside"}
}

// attachTime bounds an attach.
const attachTime = 30 * time.Second

func (f *attachFlags) run(ctx context.Context, w io.Writer) error {
	wanted, err := f.wanted()
	if err != nil {
		return err
	}
	p, err := f.find()
	if err != nil {
		return err
	}
	if f.label != "" {
		p.label = f.label
	}
	ctx, cancel := context.WithTimeout(ctx, attachTime)
	defer cancel()
	now, err := f.port().Pods(ctx)
	if err != nil {
		return err
	}
	if !now.Node.Attaches {
		return fmt.Errorf("weftd cannot attach a pod now: %s", now.Node.Why)
	}
	store, holder := f.store(), hostlocal.Holder{Container: p.key.ID, Interface: p.key.Interface}
	before, err := store.Lookup(holder)
	if err != nil && len(before) == 0 {
		fmt.Fprintln(os.Stderr, "weft attach:", err) // somebody else's file
	}
	subnets, err := f.subnets(now.Node, wanted)
	if err != nil {
		return err
	}
	got, err := store.Allocate(ctx, holder, subnets, wanted...)
	if err != nil {
		return explainAllocation(err, store)
	}
	undo := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attachTime)
		defer cancel()
		if len(got.New) == 0 {
			return
		}
		if _, err := store.Release(ctx, holder, got.New...); err != nil {
			fmt.Fprintln(os.Stderr, "weft attach:", err)
		}
	}
	r := podport.Request{
		Key: p.key, Name: p.label, Netns: p.path, By: podport.ByWeft, MTU: now.Node.MTU,
		Reservation: &podport.Reservation{Dir: store.Dir, Network: store.Network},
	}
	if f.mtu > 0 {
		r.MTU = f.mtu
	}
	for _, a := range got.Addresses {
		r.Addresses = append(r.Addresses, a.Addr())
	}
	done, err := f.attach(ctx, r, now, len(before) > 0)
	if err != nil {
		undo()
		return err
	}
	return f.Print(w, done, func(w io.Writer) error {
		if done.Note != "" {
			fmt.Fprintln(os.Stderr, "weft attach:", cli.Clean(done.Note))
		}
		_, err := fmt.Fprintf(w, "%s is attached: %s, MTU %d\n", cli.Clean(done.Name),
			cli.Join(done.Addresses...), done.MTU)
		return err
	})
}

// attach makes the interface, unless it is as it has to be, and hands it over. ours says that an interface of
// that name is ours.
func (f *attachFlags) attach(ctx context.Context, r podport.Request, now podport.Pods,
	ours bool) (podport.Pod, error) {
	t := podtun.Task{What: podtun.TaskCheck, Spec: podtun.Spec{Netns: r.Netns, Name: r.Interface,
		Addresses: r.Addresses, MTU: r.MTU}}
	switch f.routes {
	case "auto":
		t.Networks = now.Node.Networks
	case "default":
		t.Spec.Routes = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0),
			netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	case "network":
		t.Spec.Routes = now.Node.Networks
	}
	i := slices.IndexFunc(now.Pods, func(p podport.Pod) bool { return p.Key == r.Key })
	if i >= 0 && now.Pods[i].State == podport.Attached && slices.Equal(now.Pods[i].Addresses, r.Addresses) {
		if _, err := podtun.Do(ctx, t, helper()); err == nil {
			return now.Pods[i], nil
		}
	}
	t.What = podtun.TaskMake
	tun, err := podtun.Do(ctx, t, helper())
	if errors.Is(err, fs.ErrExist) && (ours || i >= 0) { // one that weftd has lost, or that somebody has changed
		remove := t
		remove.What = podtun.TaskRemove
		if err = f.forget(ctx, r.Key); err == nil {
			_, err = podtun.Do(ctx, remove, helper())
		}
		if err == nil {
			tun, err = podtun.Do(ctx, t, helper())
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return podport.Pod{}, fmt.Errorf("%s has an interface %s already, which is not one of weft's: name "+
			"another one (--name)", r.Netns, r.Interface)
	}
	if err != nil {
		return podport.Pod{}, err
	}
	defer tun.Close()
	fds := []int{int(tun.Fd())}
	if settings, err := podtun.OpenSettings(r.Netns, r.Interface, podport.Settings()); err == nil {
		// without them the interface keeps its MTU when the overlay's changes
		for _, f := range settings {
			defer f.Close()
			fds = append(fds, int(f.Fd()))
		}
	}
	done, err := f.port().Attach(ctx, r, fds)
	if err != nil {
		t.What = podtun.TaskRemove
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attachTime)
		defer cancel()
		_, undone := podtun.Do(ctx, t, helper())
		return done, errors.Join(err, undone)
	}
	return done, nil
}

// forget has weftd give a pod up. If it lost the interface instead, it would take the pod for gone, and free
// the addresses that the new interface is to have.
func (f *attachFlags) forget(ctx context.Context, k podport.Key) error {
	if _, err := f.port().Detach(ctx, k); err != nil && !errors.Is(err, socket.ErrNotFound) {
		return err
	}
	return nil
}

// wanted are the addresses that are asked for; none with auto.
func (f *attachFlags) wanted() (out []netip.Addr, err error) {
	for _, text := range f.addresses {
		if text == "auto" {
			continue
		}
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, cli.Usagef("--address %s: want auto, or an address without a length", cli.Clean(text))
		}
		out = append(out, a.Unmap())
	}
	if !slices.Contains([]string{"auto", "default", "network", "none"}, f.routes) {
		return nil, cli.Usagef("--routes %s: want auto, default, network or none", cli.Clean(f.routes))
	}
	if f.mtu != 0 && (f.mtu < podport.LeastMTU || f.mtu > podport.MostMTU) {
		return nil, cli.Usagef("--mtu %d: want %d to %d", f.mtu, podport.LeastMTU, podport.MostMTU)
	}
	return out, nil
}

// subnets are those of which the pod gets an address: all, or where addresses are asked for and auto is not,
// those of their families.
func (f *attachFlags) subnets(n podport.Node, wanted []netip.Addr) ([]netip.Prefix, error) {
	for _, a := range wanted {
		if !slices.ContainsFunc(n.Subnets, func(s netip.Prefix) bool { return s.Contains(a) }) {
			var have []string
			for _, s := range n.Subnets {
				have = append(have, s.String())
			}
			return nil, fmt.Errorf("--address %s is not of this node, whose pods have addresses of %s: ask for one "+
				"of these, or for any with --address auto", a, strings.Join(have, " and "))
		}
	}
	if len(wanted) == 0 || slices.Contains(f.addresses, "auto") {
		return n.Subnets, nil
	}
	return slices.DeleteFunc(slices.Clone(n.Subnets), func(s netip.Prefix) bool {
		return !slices.ContainsFunc(wanted, func(a netip.Addr) bool { return a.Is4() == s.Addr().Is4() })
	}), nil
}

// explainAllocation adds what to do.
func explainAllocation(err error, s hostlocal.Store) error {
	var taken *hostlocal.TakenError
	switch {
	case errors.Is(err, hostlocal.ErrFull):
		return fmt.Errorf("%w: weft pods and the pods on the bridge have them; reservations of pods that are "+
			"gone are files in %s", err, filepath.Join(s.Dir, s.Network))
	case errors.As(err, &taken):
		return fmt.Errorf("%w: ask for another one, or for any with --address auto", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: run this as root, or name a directory of your own with --reservations", err)
	}
	return err
}
