package benchcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"weft/bench/ends"
	"weft/bench/plan"
	"weft/bench/report"
	"weft/cmd/weft/internal/cli"
	"weft/cmd/weft/internal/labcmd"
	"weft/test/lab/holder"
)

// endPs is the GOMAXPROCS of a far end. It is more than a measurement has endpoints, so that none of them
// waits for another.
const endPs = 16

func benchEndCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "end",
		Short:  "Be the far end of weft bench --through, which starts this",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), endPs))
			ctx, stop := cli.WithHangup(cmd.Context())
			defer stop()
			return ends.Serve(ctx, os.Stdin, os.Stdout)
		},
	}
}

// resolve reads ADDR, ADDR:PORT or the same with a name, of which it takes the first address of the family.
// IPv6 is in brackets or, alone, without.
func resolve(ctx context.Context, s string, ipv6 bool) (netip.AddrPort, error) {
	host, port := strings.Trim(s, "[]"), uint64(ends.DefaultPort)
	if h, p, err := net.SplitHostPort(s); err == nil {
		host = h
		if port, err = strconv.ParseUint(p, 10, 16); err != nil {
			return netip.AddrPort{}, fmt.Errorf("--to %s: %w", s, err)
		}
	}
	network := map[bool]string{false: "ip4", true: "ip6"}[ipv6]
	if _, err := netip.ParseAddr(host); err == nil {
		network = "ip"
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, network, host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("--to %s: %w", s, err)
	}
	return netip.AddrPortFrom(all[0].Unmap(), uint16(port)), nil
}

// benchThrough measures to a far end that it starts.
func benchThrough(cmd *cobra.Command, f benchFlags) error {
	if f.to == "" || f.through == "" {
		return cli.Usagef("--to and --through go together: the address of the other end, and the command that " +
			"reaches it, such as --to 10.42.2.2 --through 'ssh node2'")
	}
	ctx, stop := cli.WithHangup(cmd.Context())
	defer stop()
	at, err := resolve(ctx, f.to, f.ipv6)
	if err != nil {
		return err
	}
	far, err := reach(ctx, f.through, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	paths := 1
	if f.reverse {
		paths = 2
	}
	p := ends.Plan{Config: f.Config.Config, To: at, Reverse: f.reverse, Topology: f.topology}
	err = f.measure(cmd, f.Config.Config.Estimate(paths, 0, runtime.NumCPU()),
		func(out plan.Out, _ func(string)) (*report.Document, error) {
			return ends.Run(ctx, p, far, out)
		})
	return errors.Join(err, far.Close())
}

// farEnd is a command with a far end at its standard input and output.
type farEnd struct {
	io.WriteCloser // ending it ends the far end
	io.Reader
	wait func() error // may be called again
}

// Close ends the far end, and returns the error of the command that reached it.
func (f *farEnd) Close() error {
	_ = f.WriteCloser.Close() // it may have ended by itself
	return f.wait()
}

// reach starts the far end through a command for the shell. The caller closes it.
func reach(ctx context.Context, through string, stderr io.Writer) (*farEnd, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+through+" weft bench end")
	cmd.Stderr, cmd.WaitDelay = stderr, 5*time.Second
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &farEnd{in, out, sync.OnceValue(func() error {
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("--through %q: %w (is weft there, in $PATH?)", through, err)
		}
		return nil
	})}, nil
}

// benchLab measures between two hosts of a lab: on the one, through weft lab exec to the other.
func benchLab(f benchFlags) error {
	if f.from == "" || f.to == "" {
		return cli.Usagef("--lab goes with --from and --to: two hosts of the lab, such as node1-pod1 and " +
			"node2-pod1 (weft lab list)")
	}
	from, err := labAddr(f.lab, f.from, f.ipv6)
	if err != nil {
		return err
	}
	to, err := labAddr(f.lab, f.to, f.ipv6)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// The far end is to be the same weft.
	if err := os.Setenv("PATH", filepath.Dir(self)+":"+os.Getenv("PATH")); err != nil {
		return err
	}
	args := []string{self, "bench", "--to", netip.AddrPortFrom(to, 0).String(),
		"--through", fmt.Sprintf("weft lab exec --lab %s %s --", f.lab, f.to),
		"--topology", fmt.Sprintf("lab %s: %s (%s) and %s (%s)", f.lab, f.from, from, f.to, to)}
	return cli.StatusError(holder.Exec(f.lab, f.from, append(args, passedOn(os.Args)...)))
}

// labAddr returns the address of a pod, or of a node on the underlay.
func labAddr(name, host string, ipv6 bool) (netip.Addr, error) {
	hosts, err := labcmd.Hosts(name)
	i := slices.IndexFunc(hosts, func(h holder.PodInfo) bool { return h.Name == host })
	switch {
	case err != nil:
		return netip.Addr{}, err
	case len(hosts) == 0:
		return netip.Addr{}, fmt.Errorf("lab %s: %w (weft lab up, weft lab list)", name, holder.ErrNoLab)
	case i < 0:
		return netip.Addr{}, fmt.Errorf("no host %q in lab %s: it has %s", host, name,
			strings.Join(labcmd.HostNames(name), ", "))
	}
	h := hosts[i]
	switch {
	case h.V6.IsValid() && (ipv6 || !h.V4.IsValid()):
		return h.V6, nil
	case h.V4.IsValid() && !ipv6:
		return h.V4, nil
	}
	return netip.Addr{}, fmt.Errorf("%s has no address of that family", host)
}

// passedOn returns the arguments of weft bench without those that say where to measure.
func passedOn(args []string) (l []string) {
	skip := true // the program, and all before bench
	value := false
	for _, a := range args {
		name, _, has := strings.Cut(a, "=")
		switch {
		case skip:
			skip = a != "bench"
		case value:
			value = false
		case name == "--lab" || name == "--from" || name == "--to":
			value = !has
		default:
			l = append(l, a)
		}
	}
	return l
}
