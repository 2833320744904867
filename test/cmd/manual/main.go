// Command manual writes manual pages from what weft's programs say of themselves: a page for each command of
// weft, one for weftd and one for weft-cni. The release runs it; no product links it.
//
//	manual -o FOLDER -version VERSION -date YYYY-MM-DD PROGRAMS
//
// PROGRAMS is the folder of the programs, built for this machine.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
}

// maker makes pages of one version.
type maker struct {
	programs, out, version, date string
}

func run(args []string) error {
	var m maker
	fs := flag.NewFlagSet("manual", flag.ContinueOnError)
	fs.StringVar(&m.out, "o", "", "`folder` for the pages")
	fs.StringVar(&m.version, "version", "", "`version` at the foot of each page")
	fs.StringVar(&m.date, "date", "", "`date` at the foot of each page")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if m.out == "" || fs.NArg() != 1 {
		return errors.New("want -o FOLDER and the folder of the programs")
	}
	m.programs = fs.Arg(0)
	if err := os.MkdirAll(m.out, 0o755); err != nil {
		return err
	}
	if err := m.commands([]string{"weft"}, "the operator's tool for the overlay network that weftd carries"); err != nil {
		return err
	}
	if err := m.daemon(); err != nil {
		return err
	}
	return m.plugin()
}

// say runs a program with nothing of this machine's environment, which defaults may depend on.
func (m maker) say(name string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(m.programs, name), args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w", cmd.Args, err)
	}
	return string(out), nil
}

// commands writes the page of the command that words name, and those of the commands below it.
func (m maker) commands(words []string, short string) error {
	text, err := m.say(words[0], append(words[1:], "--help")...)
	if err != nil {
		return err
	}
	h := parseHelp(text)
	name := strings.Join(words, "-")
	p := m.page(name, "1", short)
	p.section("SYNOPSIS")
	p.literal(h.section("Usage"))
	p.section("DESCRIPTION")
	p.paragraphs(h.intro)
	below := items(h.section("Available Commands"))
	if len(below) > 0 {
		p.section("COMMANDS")
	}
	var also []string
	if len(words) > 1 {
		also = append(also, strings.Join(words[:len(words)-1], "-")+"(1)")
	}
	for _, c := range below {
		p.tagged(c.name, c.text)
		if c.name == "help" {
			continue
		}
		also = append(also, name+"-"+c.name+"(1)")
		if err := m.commands(append(append([]string{}, words...), c.name), c.text); err != nil {
			return err
		}
	}
	if flags := append(items(h.section("Flags")), items(h.section("Global Flags"))...); len(flags) > 0 {
		p.section("OPTIONS")
		for _, f := range flags {
			p.tagged(f.name, f.text)
		}
	}
	if text := h.section("Examples"); len(text) > 0 {
		p.section("EXAMPLES")
		p.literal(text)
	}
	if len(words) == 1 {
		also = append(also, "weftd(8)", "weft-cni(8)")
	}
	p.section("SEE ALSO")
	p.paragraphs([]string{strings.Join(also, ", ")})
	return m.write(p)
}

// daemon writes the page of weftd.
func (m maker) daemon() error {
	text, err := m.say("weftd", "--help")
	if err != nil {
		return err
	}
	intro, flags, ok := strings.Cut(text, "\n  --")
	if !ok {
		return errors.New("weftd --help has no flags")
	}
	head := strings.Split(strings.TrimSpace(intro), "\n\n")
	p := m.page("weftd", "8", "joins this host to a flat network of containers")
	p.section("SYNOPSIS")
	p.literal([]string{"weftd [flags]"})
	p.section("DESCRIPTION")
	p.paragraphs(head[:1])
	p.section("OPTIONS")
	p.paragraphs([]string{"-flag and --flag are the same; each may come from the variable WEFTD_FLAG, and " +
		"flannel's from FLANNELD_FLAG. " +
		"Those that end with [weft] are not flannel's."})
	for _, f := range strings.Split("\n  --"+flags, "\n  --")[1:] {
		if f == "" {
			continue
		}
		name, text, _ := strings.Cut(f, "\n")
		p.tagged("--"+name, strings.Join(strings.Fields(text), " "))
	}
	p.section("FILES")
	for _, f := range [][2]string{
		{"/etc/weft/weftd.env", "settings for the unit of systemd"},
		{"/run/flannel/subnet.env", "the node's subnet and MTU, for CNI plugins"},
		{"/run/weft/weftd.sock", "where weft(1) asks"},
		{"/var/lib/weft", "the node's identity, the last known peers, the last good network configuration"},
	} {
		p.tagged(f[0], f[1])
	}
	p.section("EXIT STATUS")
	p.paragraphs([]string{"0 only for a stop that was asked for, and for --check without a fault; 1 for a " +
		"fault; 2 for a command line that is not understood."})
	p.section("SEE ALSO")
	p.paragraphs([]string{"weft(1), weft-cni(8)"})
	return m.write(p)
}

// plugin writes the page of weft-cni.
func (m maker) plugin() error {
	text, err := m.say("weft-cni", "help")
	if err != nil {
		return err
	}
	p := m.page("weft-cni", "8", "a CNI plugin that gives containers their addresses in the overlay")
	p.section("DESCRIPTION")
	p.literal(strings.Split(strings.TrimSpace(text), "\n"))
	p.section("SEE ALSO")
	p.paragraphs([]string{"weftd(8), weft(1)"})
	return m.write(p)
}

func (m maker) write(p *page) error {
	return os.WriteFile(filepath.Join(m.out, p.name), []byte(p.String()), 0o644)
}
