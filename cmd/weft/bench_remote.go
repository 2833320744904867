package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/bench/overlay"
	"weft/bench/plan"
	"weft/bench/remote"
	"weft/bench/report"
	"weft/test/lab/holder"
)

// tokenEnv keeps the token out of the list of processes.
const tokenEnv = "WEFT_BENCH_TOKEN"

func benchServeCommand() *cobra.Command {
	var listen string
	var o remote.Options
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Be the other end of weft bench --to",
		Long: "Be the other end of weft bench --to, on a node or in a pod, without any privilege.\n" +
			"One client at a time; it is sent nothing that it did not ask for, and nobody else is sent anything.\n" +
			"One port is used, by TCP and UDP.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := listenAddr(listen)
			if err != nil {
				return err
			}
			ctx, stop := withHangup(cmd.Context())
			defer stop()
			o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			s, err := remote.Listen(at, o)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "listening on %s\n", s.Addr())
			runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), serverPs))
			return s.Serve(ctx)
		},
	}
	s := cmd.Flags()
	s.StringVar(&listen, "listen", "", fmt.Sprintf("`address[:port]` to listen at (default: all addresses, port %d)", remote.DefaultPort))
	s.StringVar(&o.Token, "token", os.Getenv(tokenEnv), "serve only clients that know this (default: $"+tokenEnv+")")
	s.Lookup("token").DefValue = ""
	s.BoolVar(&o.Once, "once", false, "end after one client")
	s.DurationVar(&o.Wait, "wait", 0, "end if no client has come until then; 0 waits for ever")
	s.Float64Var(&o.MaxRate, "max-rate", 2e6, "the most packets a second that a client can ask for")
	s.DurationVar(&o.MaxDuration, "max-duration", time.Minute, "the longest single measurement that a client can ask for")
	return cmd
}

// serverPs is the GOMAXPROCS of a server. It is more than a measurement has endpoints, so that none of them waits for another.
const serverPs = 16

// listenAddr reads ADDR, ADDR:PORT, :PORT or nothing.
func listenAddr(s string) (netip.AddrPort, error) {
	if s == "" {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), remote.DefaultPort), nil
	}
	if port, ok := strings.CutPrefix(s, ":"); ok && !strings.Contains(port, ":") {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("--listen %s: %w", s, err)
		}
		return netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(n)), nil
	}
	if at, err := literal(s); err == nil {
		return at, nil
	}
	return netip.AddrPort{}, fmt.Errorf("--listen %s: want an address, with or without :port", s)
}

// literal reads ADDR or ADDR:PORT, with IPv6 in brackets or, alone, without.
func literal(s string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return netip.AddrPortFrom(a.Unmap(), remote.DefaultPort), nil
	}
	at, err := netip.ParseAddrPort(s)
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), err
}

// resolve is like literal, and also accepts a name, of which it takes the first address of the family.
func resolve(ctx context.Context, s string, ipv6 bool) (netip.AddrPort, error) {
	if at, err := literal(s); err == nil {
		return at, nil
	}
	host, port := s, uint64(remote.DefaultPort)
	if h, p, err := net.SplitHostPort(s); err == nil {
		host = h
		if port, err = strconv.ParseUint(p, 10, 16); err != nil {
			return netip.AddrPort{}, fmt.Errorf("--to %s: %w", s, err)
		}
	}
	network := "ip4"
	if ipv6 {
		network = "ip6"
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, network, host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("--to %s: %w", s, err)
	}
	return netip.AddrPortFrom(all[0].Unmap(), uint16(port)), nil
}

// benchTo measures to a server.
func benchTo(cmd *cobra.Command, f benchFlags, c overlay.Config) error {
	ctx, stop := withHangup(cmd.Context())
	defer stop()
	at, err := resolve(ctx, f.to, f.ipv6)
	if err != nil {
		return err
	}
	paths := 1
	if f.reverse {
		paths = 2
	}
	p := remote.Plan{Config: c.Config, Server: at, Token: f.token, Reverse: f.reverse, Topology: f.topology}
	return f.measure(cmd, c.Config.Estimate(paths, 0, runtime.NumCPU()), func(out plan.Out, _ func(string)) (*report.Document, error) {
		return remote.Run(ctx, p, out)
	})
}

// benchLab runs both ends in a lab. It asks the lab's holder, since only that can enter the hosts.
func benchLab(f benchFlags) error {
	if f.from == "" || f.to == "" {
		return usagef("--lab goes with --from and --to: two hosts of the lab, such as node1-pod1 and node2-pod1 (weft lab list)")
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
	server, at, err := serveInLab(self, f, to)
	if err != nil {
		return err
	}
	args := []string{self, "bench", "--to", at, "--topology", fmt.Sprintf("lab %s: %s (%s) and %s (%s)", f.lab, f.from, from, f.to, to)}
	args = append(args, passedOn(os.Args)...)
	status, err := holder.Exec(holder.Command{Lab: f.lab, Host: f.from, Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
	err = errors.Join(err, statusError(status))
	if serving := <-server; err == nil {
		err = serving
	}
	return err
}

// serveInLab starts a server on the host, which ends with its first client. at is where it listens.
func serveInLab(self string, f benchFlags, addr netip.Addr) (ended <-chan error, at string, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, "", errors.Join(err, r.Close(), w.Close())
	}
	done := make(chan error, 1)
	args := []string{self, "bench", "serve", "--once", "--wait", "20s", "--listen", netip.AddrPortFrom(addr, 0).String()}
	if f.token != "" {
		args = append(args, "--token", f.token)
	}
	go func() { // waited for by benchLab
		defer null.Close()
		defer w.Close()
		status, err := holder.Exec(holder.Command{
			Lab: f.lab, Host: f.to, Stdin: null, Stdout: w, Stderr: w, Args: args,
		})
		done <- errors.Join(err, statusError(status))
	}()
	said := bufio.NewReader(r)
	first, err := said.ReadString('\n')
	at, ok := strings.CutPrefix(strings.TrimSpace(first), "listening on ")
	go func() { // a server that logs into a closed pipe would die; ends when the server has
		defer r.Close()
		_, _ = io.Copy(io.Discard, said)
	}()
	if err != nil || !ok {
		return nil, "", errors.Join(fmt.Errorf("the server on %s says %q", f.to, first), <-done)
	}
	return done, at, nil
}

// labAddr returns the address of a pod, or of a node on the underlay.
func labAddr(name, host string, ipv6 bool) (netip.Addr, error) {
	labs, err := holder.List()
	if err != nil {
		return netip.Addr{}, err
	}
	var hosts []string
	for _, l := range labs {
		if l.Name != name || l.Info == nil {
			continue
		}
		for _, n := range l.Info.Nodes {
			for _, h := range append(n.Pods, holder.PodInfo{Name: n.Name, V4: n.Underlay4, V6: n.Underlay6}) {
				hosts = append(hosts, h.Name)
				switch {
				case h.Name != host:
				case ipv6 && h.V6.IsValid(), !h.V4.IsValid() && h.V6.IsValid():
					return h.V6, nil
				case h.V4.IsValid() && !ipv6:
					return h.V4, nil
				default:
					return netip.Addr{}, fmt.Errorf("%s has no address of that family", host)
				}
			}
		}
	}
	if hosts == nil {
		return netip.Addr{}, fmt.Errorf("lab %s: %w (weft lab up, weft lab list)", name, holder.ErrNoLab)
	}
	return netip.Addr{}, fmt.Errorf("no host %q in lab %s: it has %s", host, name, strings.Join(hosts, ", "))
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
		case name == "--lab" || name == "--name" || name == "--from" || name == "--to":
			value = !has
		default:
			l = append(l, a)
		}
	}
	return l
}
