package bench

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"weft/bench/overlay"
	"weft/bench/plan"
	"weft/test/lab/holder"
)

// An ordinary user measures the overlay in new user, network and pid namespaces, in which TestMain
// runs this program once more. If the machine refuses those namespaces or /dev/net/tun,
// BenchmarkOverlay fails if -bench names it ("Overlay" is in the pattern); otherwise
// it says what is missing, reports that it measured 0 rungs, and passes.
const (
	envIsolated = "WEFT_BENCH_ISOLATED"
	envRefused  = "WEFT_BENCH_REFUSED" // why we have no user namespace
)

func TestMain(m *testing.M) {
	if is, status, err := holder.Init(); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(status)
	}
	flag.Parse()
	if os.Getenv(envIsolated) != "" {
		if lo, err := netlink.LinkByName("lo"); err == nil {
			_ = netlink.LinkSetUp(lo) // else a benchmark over it will say so
		}
	} else if pattern() != "" && holder.NeedsIsolation(false) {
		_ = os.Setenv(envIsolated, "yes") // fails only for a name that is invalid
		status, err := holder.Isolated()
		if err == nil {
			os.Exit(status)
		}
		_ = os.Unsetenv(envIsolated)
		_ = os.Setenv(envRefused, err.Error())
	}
	os.Exit(m.Run())
}

// pattern is the value of -bench.
func pattern() string { return flag.Lookup("test.bench").Value.String() }

// unable ends a benchmark that this machine does not let run.
func unable(b *testing.B, err error) {
	if os.Geteuid() == 0 && os.Getenv(envIsolated) == "" || strings.Contains(pattern(), "Overlay") {
		b.Fatal(err)
	}
	b.Logf("NOT MEASURED: %v", err)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(0, "rungs")
}

// BenchmarkOverlay measures between pods on two nodes that are joined by the kernel, set up by hand,
// and by each path of weftd, in turns. It prints a line for every turn, and a table of medians at the end.
//
//	go test -run '^$' -bench 'Overlay$' ./bench
//
// With -short it takes one short round. The command weft bench has settings.
func BenchmarkOverlay(b *testing.B) {
	c := overlay.Config{Config: plan.Default(), Rungs: overlay.Usual(), Wires: []string{"uso", "plain"}}
	if testing.Short() {
		c.Config, c.Wires = plan.Quick(), c.Wires[1:]
	}
	if why := os.Getenv(envRefused); why != "" {
		unable(b, fmt.Errorf("%s", why))
		return
	}
	dir := b.TempDir()
	build := exec.CommandContext(b.Context(), "go", "build", "-o", dir+"/", "weft/cmd/weftd",
		"weft/cmd/weft-etcd")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	c.Weftd = dir + "/weftd"
	out := plan.Out{Lines: os.Stdout}
	d, err := overlay.Run(b.Context(), c, out, func(line string) { fmt.Fprintln(os.Stderr, "#", line) })
	var gaps *plan.GapsError
	if err != nil && !errors.As(err, &gaps) {
		unable(b, err)
		return
	}
	fmt.Println()
	if err := d.WriteTable(os.Stdout); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(c.Rounds), "rounds")
	b.ReportMetric(d.Seconds, "s")
	if err != nil {
		b.Fatal(err)
	}
}
