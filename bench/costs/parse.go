package costs

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// Cost is what one benchmark printed.
type Cost struct {
	Nanoseconds float64 // for each operation
	Allocs      float64 // for each operation
}

// Run has the costs of one run by name. A name is the package's import path, a dot, and the benchmark's
// name without its GOMAXPROCS.
type Run map[string]Cost

// processors matches the GOMAXPROCS at the end of a name.
var processors = regexp.MustCompile(`-\d+$`)

// Parse reads the output of `go test -bench`, and ignores lines that are not a benchmark's.
func Parse(r io.Reader) (Run, error) {
	run := Run{}
	pkg := ""
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		switch {
		case len(f) == 2 && f[0] == "pkg:":
			pkg = f[1]
		case len(f) >= 4 && strings.HasPrefix(f[0], "Benchmark"):
			c, err := parseCost(f[2:])
			if err != nil {
				return nil, fmt.Errorf("%q: %w", lines.Text(), err)
			}
			run[pkg+"."+processors.ReplaceAllString(f[0], "")] = c
		}
	}
	return run, lines.Err()
}

// parseCost reads pairs of value and unit.
func parseCost(f []string) (c Cost, err error) {
	for i := 0; i+1 < len(f); i += 2 {
		v, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			return c, err
		}
		switch f[i+1] {
		case "ns/op":
			c.Nanoseconds = v
		case "allocs/op":
			c.Allocs = v
		}
	}
	return c, nil
}
