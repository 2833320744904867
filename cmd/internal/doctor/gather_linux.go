package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/net/http/httpproxy"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
	"weft/cmd/internal/onlink"
	"weft/cmd/internal/options"
	"weft/cmd/internal/running"
	"weft/lease/redact"
	"weft/routing"
	"weft/routing/hostrules"
)

// Within bounds Gather as a whole.
const Within = 20 * time.Second

// Request says what Gather is to look at.
type Request struct {
	// Settings, if not nil, are those with which weftd would run; else they are found.
	Settings *Settings
	// Socket is the control socket of the weftd to ask; "" for none.
	Socket string
	// Args are weftd's flags, and Environ its variables, for a weftd that does not run.
	Args, Environ []string
	// Offline leaves the store in peace.
	Offline bool
}

// watched is how long counters are watched at least: what is wrong raises them all the time.
const watched = 500 * time.Millisecond

// Gather reads what the checks need, and changes nothing. It takes Within at most; what is not there by then
// counts as not known.
func Gather(ctx context.Context, r Request) *Facts {
	ctx, cancel := context.WithTimeout(ctx, Within)
	defer cancel()
	neighbours, dropped, watch := readNeighbours(nil), reversePathDrops(), time.After(watched)
	f := Know(ctx, r)
	if !f.hidden() {
		f.Daemon.StoreLost = storeLost(f.Settings.CacheDir, f.Now)
	}
	f.Kernel, f.Files, f.HookErr = readKernel(f.Daemon), readFiles(f.Settings.Config),
		f.Settings.Hook.CheckFiles()
	if feature := f.Network.Facts().Feature; feature != nil {
		f.Kernel.Feature = feature.Probe()
	}
	f.Links.Neighbours = onlink.Look(ctx, f.odd(f.Links))
	f.Kernel.Settings = readSettings(f.Links.Links)
	f.Port = readPort(f)
	f.Firewall.Suspects, f.Firewall.Err = hostrules.Suspects(ctx)
	select {
	case <-ctx.Done():
	case <-watch:
	}
	f.Kernel.Neighbours = readNeighbours(neighbours)
	f.Kernel.ReversePathDrops = max(dropped, reversePathDrops()) - dropped
	if f.Daemon.Answers() { // that it does not any more is no check's
		f.Daemon.Later, _ = control.NewClient(r.Socket).Peers(ctx)
	}
	return f
}

// Know reads what is known of this node and its network: by the running weftd, by what it left, by the store
// and by the kernel.
func Know(ctx context.Context, r Request) *Facts {
	patience := Within / 10 // a daemon that hangs must leave time for the store
	if r.Offline {
		patience = Within / 2
	}
	f := &Facts{Now: time.Now(), Daemon: askDaemon(ctx, r.Socket, patience)}
	if r.Settings != nil {
		f.Settings = *r.Settings
	} else {
		f.Settings = findSettings(r, f.Daemon, running.UnitVariables)
	}
	f.Store = askStore(ctx, f.Settings, f.Daemon, r.Offline)
	f.Network = readNetwork(f)
	f.Links = readLinks(f)
	if f.Network.known() && f.Links.Underlay.Name != "" {
		f.Network.MTU, f.Network.MTUErr = f.Network.Network.MTU(f.Links.Underlay)
	}
	return f
}

// askDaemon asks the weftd on socket, which may take that long.
func askDaemon(ctx context.Context, socket string, patience time.Duration) Daemon {
	if socket == "" {
		return Daemon{}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := control.NewClient(socket)
	d := Daemon{Asked: true, PID: c.Listener(ctx)}
	if d.Status, d.Err = c.Status(ctx); d.Err == nil {
		d.PID = running.Find(d.PID, d.Status.PID)
		d.Peers, d.Err = c.Peers(ctx)
		d.Leases, _ = c.Leases(ctx) // it has none while it waits
	}
	if d.Err != nil && d.PID != 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		d.Err = fmt.Errorf("%w within %s", control.ErrStuck, patience)
	}
	if errors.Is(d.Err, control.ErrNoDaemon) {
		d.Holder, _, d.HolderErr = custody.Look(ctx, custody.SocketFor(socket))
	}
	var here, there unix.Stat_t
	if d.PID != 0 && unix.Stat("/proc/thread-self/ns/net", &here) == nil &&
		unix.Stat(fmt.Sprintf("/proc/%d/ns/net", d.PID), &there) == nil {
		d.Elsewhere = here.Ino != there.Ino || here.Dev != there.Dev
	}
	if p, err := procfs.NewProc(d.PID); err == nil && d.PID != 0 {
		d.Descriptors, _ = p.FileDescriptorsLen()
		if l, err := p.Limits(); err == nil {
			d.MayOpen = int(min(l.OpenFiles, math.MaxInt32))
		}
	}
	return d
}

// findSettings finds those of the running weftd, else those of the arguments and the environment, and the
// unit's if neither says anything.
func findSettings(r Request, d Daemon, unit func() ([]string, error)) Settings {
	if d.PID != 0 && len(r.Args) == 0 {
		if p, err := running.Read(d.PID); err == nil {
			return settingsOf(p)
		}
	}
	s := Settings{From: "the flags and variables given here", Given: len(r.Args) > 0}
	environ := r.Environ
	if len(r.Args) == 0 && !running.Mentions(environ) {
		of, err := unit()
		switch {
		case d.Answers():
			s.NotKnown = "weftd's process is not visible from here: run weft doctor as root, in its PID namespace"
		case err != nil:
			s.NotKnown = "no weftd runs, and " + running.UnitFile +
				" is not there: give weft doctor its flags behind --"
		default:
			s.From, s.Given, environ = running.UnitFile, true, append(of, environ...)
		}
		if s.NotKnown != "" {
			s.From = "nobody, since " + s.NotKnown
		}
	}
	s.Config, s.Err = options.Parse(r.Args, environ)
	return s
}

// settingsOf are those of a weftd that runs, with its files as they are found from here: it may run in a
// container, and from another directory.
func settingsOf(p running.Process) Settings {
	s := Settings{From: fmt.Sprintf("the running weftd (pid %d)", p.PID)}
	s.Config, s.Err = p.Settings()
	s.Proxy = proxyOf(p.Environ, s.Store.Endpoints)
	for _, path := range []*string{
		&s.SubnetFile, &s.NetConfigPath, &s.CacheDir, &s.WireGuardKeyFile, &s.Kube.Kubeconfig, &s.Embedded.Dir,
		&s.Store.CAFile, &s.Store.CertFile, &s.Store.KeyFile, &s.Store.PasswordFile,
		&s.Hook.TokenFile, &s.Hook.CAFile, &s.Hook.CertFile, &s.Hook.KeyFile,
	} {
		if *path != "" {
			*path = p.Path(*path)
		}
	}
	return s
}

// proxyOf is the proxy, without secrets, by which gRPC asks one of the endpoints in a process with these
// variables; "" for none.
func proxyOf(environ, endpoints []string) string {
	first := func(names ...string) (value string) {
		for _, name := range names {
			for _, v := range environ {
				if n, text, _ := strings.Cut(v, "="); n == name && value == "" {
					value = text
				}
			}
		}
		return value
	}
	through := (&httpproxy.Config{HTTPSProxy: first("HTTPS_PROXY", "https_proxy"),
		NoProxy: first("NO_PROXY", "no_proxy")}).ProxyFunc()
	for _, e := range endpoints {
		if u, err := url.Parse(e); err == nil {
			if by, _ := through(&url.URL{Scheme: "https", Host: u.Host}); by != nil { // gRPC says what is wrong with it
				return redact.URL(by.String())
			}
		}
	}
	return ""
}

// readKernel reads what the kernel has, and what weftd, or this process, may do. Of a weftd that answers and
// whose process is not visible nothing is known.
func readKernel(d Daemon) Kernel {
	var k Kernel
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		k.Release = unix.ByteSliceToString(u.Release[:])
	}
	device := "/dev/net/tun"
	k.Whose, k.Ordinary = "this process", d.PID == 0 && os.Geteuid() != 0
	switch {
	case d.PID != 0:
		device = running.Process{PID: d.PID}.Path(device)
		k.Whose = fmt.Sprintf("weftd (pid %d)", d.PID)
	case d.Answers():
		k.Whose, k.CapabilitiesErr, k.TUN = "weftd", errHidden, errHidden
		return k
	}
	tun, err := os.OpenFile(device, os.O_RDWR, 0) // this makes no device
	if k.TUN = err; err == nil {
		_ = tun.Close()
	}
	set, err := cap.GetPID(d.PID) // 0 is this process
	if k.CapabilitiesErr = err; err == nil {
		k.NetAdmin, _ = set.GetFlag(cap.Effective, cap.NET_ADMIN) // it knows both
		k.NetRaw, _ = set.GetFlag(cap.Effective, cap.NET_RAW)
	}
	return k
}

// errHidden is why nothing is known of a process.
var errHidden = errors.New("its process is not visible from here")

// reversePathDrops is how many packets rp_filter dropped in this network namespace; 0 if that is not known.
func reversePathDrops() uint64 {
	k, err := routing.OpenKernel()
	if err != nil {
		return 0
	}
	defer func() { _ = k.Close() }()
	n, _ := k.ReversePathDrops()
	return n
}

// readSettings reads the settings that the checks look at.
func readSettings(links []Link) map[string]string {
	names := []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv4/conf/all/rp_filter",
		bridgeFiltered4, bridgeFiltered6, conntracked, conntrackMost,
		"ipv4" + neighbourMost, "ipv6" + neighbourMost}
	for _, l := range links {
		if l.Kind == "veth" && l.Alias != ownAlias && len(l.Addrs) == 0 {
			continue // to a pod, of which there may be hundreds
		}
		names = append(names, "ipv4/conf/"+l.Name+"/rp_filter", "ipv4/conf/"+l.Name+"/forwarding", "ipv6/conf/"+
			l.Name+"/forwarding")
	}
	out := map[string]string{}
	for _, name := range names {
		if b, err := os.ReadFile("/proc/sys/net/" + name); err == nil {
			out[name] = strings.TrimSpace(string(b))
		} else if !errors.Is(err, syscall.ENOENT) {
			out[name] = "unreadable"
		}
	}
	return out
}

// readNeighbours reads the tables; before is what it read earlier. A container's network namespace does not
// show them.
func readNeighbours(before []Neighbours) (out []Neighbours) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return nil
	}
	all, _ := proc.NetStat() // without them nothing is known
	for _, stat := range all {
		family := map[string]string{"arp_cache": "IPv4", "ndisc_cache": "IPv6"}[stat.Filename]
		entries, refused := stat.Stats["entries"], stat.Stats["table_fulls"] // of each processor
		if family == "" || len(entries) == 0 {
			continue
		}
		n := Neighbours{Family: family, Entries: int(entries[0])} // each has the number of all
		for _, x := range refused {
			n.Refused += int(x)
		}
		for _, b := range before {
			if b.Family == family {
				n.Lately = n.Refused - b.Refused
			}
		}
		out = append(out, n)
	}
	return out
}
