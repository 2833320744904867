package doctor

import (
	"os"
	"slices"
	"strconv"
	"strings"
)

// readNeighbours reads the tables; before is what it read earlier.
func readNeighbours(before []Neighbours) (out []Neighbours) {
	for _, t := range []struct{ family, file, setting string }{
		{"IPv4", "arp_cache", "ipv4/neigh/default/gc_thresh3"},
		{"IPv6", "ndisc_cache", "ipv6/neigh/default/gc_thresh3"},
	} {
		text, err := os.ReadFile("/proc/net/stat/" + t.file)
		if err != nil {
			continue
		}
		n := Neighbours{Family: t.family, Bound: key(t.setting)}
		if !n.parse(string(text)) {
			continue
		}
		if text, err := os.ReadFile("/proc/sys/net/" + t.setting); err == nil {
			n.Most, _ = strconv.Atoi(strings.TrimSpace(string(text))) // 0 is not known
		}
		for _, b := range before {
			if b.Family == n.Family {
				n.Lately = n.Refused - b.Refused
			}
		}
		out = append(out, n)
	}
	return out
}

// parse reads a file of /proc/net/stat: names of columns, and a line of hexadecimal numbers for each
// processor. The number of entries is that of all in each line, the others are added up.
func (n *Neighbours) parse(text string) bool {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	names := strings.Fields(lines[0])
	entries, refused := slices.Index(names, "entries"), slices.Index(names, "table_fulls")
	if entries < 0 || refused < 0 {
		return false
	}
	for _, line := range lines[1:] {
		f := strings.Fields(line)
		if len(f) <= max(entries, refused) {
			return false
		}
		all, err := strconv.ParseUint(f[entries], 16, 32)
		more, err2 := strconv.ParseUint(f[refused], 16, 32)
		if err != nil || err2 != nil {
			return false
		}
		n.Entries, n.Refused = int(all), n.Refused+int(more)
	}
	return len(lines) > 1
}

// checkNeighbours looks whether packets are lost since the kernel has no room for one more neighbour.
func checkNeighbours(f *Facts) findings {
	const shared = "it is shared by all network namespaces of the host, so pods and bridges of any kind fill it"
	var out findings
	for _, n := range f.Kernel.Neighbours {
		switch {
		case n.Lately > 0:
			out = out.says(Fault, "the kernel's table of %s neighbours is full: while this looked, %d found no "+
				"room, and their packets were lost", n.Family, n.Lately).
				because(shared+": it has %d entries, and %s is %d", n.Entries, n.Bound, n.Most)
		case n.Most > 0 && n.Entries >= n.Most-n.Most/10:
			out = out.says(Warning, "the kernel's table of %s neighbours is nearly full: %d of %d; then packets to "+
				"new neighbours are lost", n.Family, n.Entries, n.Most).because(shared)
		default:
			continue
		}
		out.do("sysctl -w %s=%d, and the same in /etc/sysctl.d; half of that as %s. docs/performance.md has how "+
			"many it takes", n.Bound, 4*max(n.Most, 1024), strings.Replace(n.Bound, "thresh3", "thresh2", 1))
	}
	if len(f.Kernel.Neighbours) == 0 {
		return says(OK, "the kernel does not show its tables of neighbours here")
	}
	return out.orOK("the kernel's tables of neighbours have room")
}
