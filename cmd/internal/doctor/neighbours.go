package doctor

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// neighbourWatch is how long the tables are watched: one that is full refuses neighbours all the time.
const neighbourWatch = 500 * time.Millisecond

// watchNeighbours reads the tables twice.
func watchNeighbours(ctx context.Context) (out []Neighbours) {
	first := readNeighbours()
	if len(first) == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(neighbourWatch):
	}
	out = readNeighbours()
	for i := range out {
		if k := slices.IndexFunc(first, func(n Neighbours) bool { return n.Family == out[i].Family }); k >= 0 {
			out[i].Lately = out[i].Refused - first[k].Refused
		}
	}
	return out
}

func readNeighbours() (out []Neighbours) {
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
func checkNeighbours(f *Facts) []Finding {
	var out []Finding
	for _, n := range f.Kernel.Neighbours {
		remedy := func(x Finding) Finding {
			most := max(n.Most, 1024)
			return x.do("sysctl -w %s=%d, and the same in /etc/sysctl.d; half of that as %s. docs/performance.md "+
				"has how many it takes", n.Bound, 4*most, strings.Replace(n.Bound, "thresh3", "thresh2", 1))
		}
		switch {
		case n.Lately > 0:
			out = append(out, remedy(says(Fault, "the kernel's table of %s neighbours is full: while this looked, "+
				"%d found no room, and their packets were lost", n.Family, n.Lately).
				because("it is shared by all network namespaces of the host, so pods and bridges of any kind fill it: "+
					"it has %d entries, and %s is %d", n.Entries, n.Bound, n.Most)))
		case n.Most > 0 && n.Entries >= n.Most-n.Most/10:
			out = append(out, remedy(says(Warning, "the kernel's table of %s neighbours is nearly full: %d of %d; "+
				"then packets to new neighbours are lost", n.Family, n.Entries, n.Most).
				because("it is shared by all network namespaces of the host, so pods and bridges of any kind fill it")))
		}
	}
	if len(f.Kernel.Neighbours) == 0 {
		return one(OK, "the kernel does not show its tables of neighbours here")
	}
	return orOK(out, "the kernel's tables of neighbours have room")
}
