package bugreport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"weft/cmd/internal/options"
	"weft/cmd/internal/running"
)

// part is one file of the archive. read gets a time limit of its own; what it returned with an error is kept.
type part struct {
	name, what string
	limit      time.Duration
	read       func(ctx context.Context) ([]byte, error)
}

// usual is how long a part may take, unless it says more.
const usual = 5 * time.Second

// program runs a program, with what it prints on stderr behind what it prints on stdout.
func program(name, what string, limit time.Duration, argv ...string) part {
	return part{name, what, limit, func(ctx context.Context) ([]byte, error) {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.WaitDelay = time.Second
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		var errs bytes.Buffer
		cmd.Stderr = &errs
		text, err := cmd.Output()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		if errs.Len() > 0 {
			text = append(append(text, "\n[stderr]\n"...), errs.Bytes()...)
		}
		return text, err
	}}
}

// maxPart bounds a part, in bytes.
const maxPart = 4 << 20

// cut bounds text, at the end of a line: half a secret would not be known for one.
func cut(text []byte) ([]byte, error) {
	if len(text) <= maxPart {
		return text, nil
	}
	return text[:bytes.LastIndexByte(text[:maxPart], '\n')+1],
		fmt.Errorf("it is longer, and ends after %d bytes", maxPart)
}

// files reads files, each under its name. That one is not there is no error.
func files(name, what string, paths ...string) part {
	return part{name, what, usual, func(context.Context) ([]byte, error) {
		var out bytes.Buffer
		var faults []error
		for _, pattern := range paths {
			matches, err := filepath.Glob(pattern)
			faults = append(faults, err)
			for _, path := range matches {
				b, err := readRegular(path)
				if faults = append(faults, err); err == nil {
					fmt.Fprintf(&out, "== %s\n%s\n", path, bytes.TrimRight(b, "\n"))
				}
			}
		}
		if out.Len() == 0 {
			faults = append(faults, fmt.Errorf("there is none of %s", strings.Join(paths, " ")))
		}
		return out.Bytes(), errors.Join(faults...)
	}}
}

// readRegular reads a file that cannot block.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", path)
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// settings has those that are not the default. Other variables of weftd's process or unit are not read: they
// may be secrets whatever their names are.
func settings(cfg options.Config, bad error) part {
	return part{"weftd.txt", "settings of weftd that are not the default", usual,
		func(context.Context) ([]byte, error) {
			var out bytes.Buffer
			for _, s := range cfg.Settings {
				if !strings.HasPrefix(s.Source, "default") {
					fmt.Fprintf(&out, "%s\t%s\t(%s)\n", s.Name, s.Value, s.Source)
				}
			}
			return out.Bytes(), bad
		}}
}

// metrics asks the running weftd for its metrics, at the port that its settings say.
func metrics(cfg options.Config, p running.Process) part {
	return part{"metrics.txt", "metrics, as /metrics serves them", usual,
		func(ctx context.Context) ([]byte, error) {
			switch {
			case p.PID == 0:
				return nil, errors.New("no weftd is known, whose flags would say where it serves them")
			case cfg.HealthzPort == 0:
				return nil, errors.New("weftd serves none: --healthz-port is 0")
			}
			host := "127.0.0.1"
			if cfg.HealthzIP.IsValid() && !cfg.HealthzIP.IsUnspecified() {
				host = cfg.HealthzIP.String()
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodGet,
				"http://"+net.JoinHostPort(host, strconv.Itoa(cfg.HealthzPort))+"/metrics", nil)
			if err != nil {
				return nil, err
			}
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			resp, err := client.Do(req)
			if err != nil {
				return nil, err
			}
			defer func() { _ = resp.Body.Close() }() // only read
			text, err := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusOK {
				err = errors.Join(err, errors.New(resp.Status))
			}
			return text, err
		}}
}

// logFile has the end of the file to which weftd writes its log, if that is a file.
func logFile(p running.Process) part {
	return part{"logfile.txt", "the end of the file that weftd's log goes to, if it goes to one", usual,
		func(context.Context) ([]byte, error) {
			if p.PID <= 0 {
				return []byte("no process of weftd is known\n"), nil
			}
			path := fmt.Sprintf("/proc/%d/fd/2", p.PID)
			info, err := os.Stat(path)
			if err != nil || !info.Mode().IsRegular() {
				return []byte("it goes to none\n"), err
			}
			f, err := os.Open(path)
			if err != nil {
				return nil, err
			}
			defer func() { _ = f.Close() }() // only read
			text, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-maxPart), maxPart))
			if info.Size() > maxPart {
				text = text[bytes.IndexByte(text, '\n')+1:] // half a line may have half a secret
			}
			return text, err
		}}
}

// parts lists what is gathered, in the order of the archive.
func parts(r Request) []part {
	self := func(name, what string, limit time.Duration, args ...string) part {
		p := program(name, what, limit, append(append([]string{r.Weft}, args...), "--control-socket", r.Socket)...)
		run := p.read
		p.read = func(ctx context.Context) ([]byte, error) {
			text, err := run(ctx)
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && len(text) > 0 &&
				!bytes.HasPrefix(text, []byte("\n[stderr]")) {
				err = nil // its status says that the node is not ready, or has faults, as what it printed does
			}
			return text, err
		}
		return p
	}
	dir := r.CacheDir
	weftd := r.Process
	if len(weftd.Args) == 0 { // none runs, or none that can be seen: as its unit would start it
		weftd.Args = []string{"weftd"}
		weftd.Environ, _ = running.UnitVariables()
	}
	cfg, err := weftd.Settings()
	networkFiles := []string{r.Process.Path(cfg.SubnetFile)}
	if cfg.NetConfigGiven || cfg.Kube.On {
		networkFiles = append(networkFiles, r.Process.Path(cfg.NetConfigPath))
	}
	all := []part{
		self("status.txt", "weft status", usual, "status"),
		self("status.json", "the same for programs", usual, "status", "--json"),
		self("peers.txt", "weft peers", usual, "peers"),
		self("peers.json", "the same for programs", usual, "peers", "--json"),
		self("leases.json", "weft lease list", 3*usual, "lease", "list", "--json"),
		self("doctor.txt", "weft doctor: what it found wrong", 4*usual, "doctor", "--all"),
		self("events.json", "weft events: what happened, with times", usual, "events", "--json",
			"--cache-dir", dir),
		metrics(cfg, r.Process),
		settings(cfg, err),
		files("config.txt", "the subnet file, and the network configuration if it is a file", networkFiles...),
		files("state.txt", "what weftd keeps for its next start", filepath.Join(dir, "*.json")),
		program("log.txt", "the end of weftd's log in the journal", 2*usual, "journalctl", "--unit", "weftd",
			"--lines", "5000", "--no-pager", "--output", "short-iso-precise"),
		logFile(r.Process),
		files("system.txt", "kernel and distribution", "/proc/version", "/etc/os-release", "/proc/cpuinfo",
			"/proc/meminfo", "/proc/loadavg", "/proc/uptime", "/proc/modules"),
		files("sysctl.txt", "settings of the kernel that matter to forwarding", "/proc/sys/net/ipv4/ip_forward",
			"/proc/sys/net/ipv6/conf/all/forwarding",
			"/proc/sys/net/ipv4/conf/*/rp_filter", "/proc/sys/net/ipv4/conf/*/forwarding",
			"/proc/sys/net/bridge/bridge-nf-call-ip*tables", "/proc/sys/net/core/[rw]mem_*",
			"/proc/sys/net/netfilter/nf_conntrack_[cm]*"),
		files("counters.txt", "counters of the kernel's network", "/proc/net/snmp", "/proc/net/snmp6",
			"/proc/net/netstat", "/proc/net/softnet_stat"),
		program("links.txt", "links", usual, "ip", "-details", "-statistics", "link", "show"),
		program("addresses.txt", "addresses", usual, "ip", "address", "show"),
		program("routes.txt", "IPv4 routes of all tables", usual, "ip", "route", "show", "table", "all"),
		program("routes6.txt", "IPv6 routes of all tables", usual, "ip", "-6", "route", "show", "table", "all"),
		program("rules.txt", "IPv4 rules for routes", usual, "ip", "rule", "show"),
		program("rules6.txt", "IPv6 rules for routes", usual, "ip", "-6", "rule", "show"),
		program("neighbours.txt", "neighbours", usual, "ip", "-statistics", "neighbour", "show"),
		program("fdb.txt", "forwarding entries of bridges and vxlan", usual, "bridge", "fdb", "show"),
		program("sockets.txt", "UDP sockets", usual, "ss", "--udp", "--all", "--numeric", "--processes"),
		program("tc.txt", "queues of links, with counters", usual, "tc", "-statistics", "qdisc", "show"),
		program("nft.txt", "all rules of nftables, with counters", 2*usual, "nft", "--handle", "list", "ruleset"),
		program("ipset.txt", "sets of addresses that rules of iptables name", usual, "ipset", "save"),
	}
	return append(all, iptables()...)
}

// iptables has the rules of both families in each flavour that this host has. A flavour shows its own rules
// only, and both apply.
func iptables() (all []part) {
	for _, family := range []struct{ prefix, name, words string }{{"iptables", "iptables", "IPv4"},
		{"ip6tables", "iptables6", "IPv6"}} {
		flavours := []string{"-nft", "-legacy"}
		if _, err := exec.LookPath(family.prefix + "-nft-save"); err != nil { // this host has one, or none
			flavours = []string{""}
		}
		for _, f := range flavours {
			all = append(all, program(family.name+f+".txt", "iptables"+f+", "+family.words+", with counters", 2*usual,
				family.prefix+f+"-save", "-c"))
		}
	}
	return all
}
