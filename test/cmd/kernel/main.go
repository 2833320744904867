// Command kernel has two nodes of a lab carry packets in each way that a kernel matters to, on the kernel
// that it finds itself on, and says for each whether all is well. make test-kernel runs it in guests with
// Debian's kernels (boot).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"

	"weft/test/lab"
)

func main() {
	match := flag.String("run", ".", "regular expression: the scenarios to run")
	flag.Parse()
	if err := all(*match); err != nil {
		fmt.Fprintln(os.Stderr, "kernel:", err)
		os.Exit(1)
	}
}

// all runs the scenarios whose name matches, one after the other. Its error says how many failed.
func all(match string) error {
	b, err := newBench(context.Background())
	if err != nil {
		return fmt.Errorf("%s", lab.Explain(err))
	}
	defer b.lab.Close()
	failed, ran := 0, 0
	for _, s := range b.scenarios() {
		if ok, err := regexp.MatchString(match, s.name); err != nil {
			return err
		} else if !ok {
			continue
		}
		ran++
		start, verdict, why := time.Now(), "ok", ""
		if err := b.run(s); err != nil {
			failed++
			verdict, why = "FAIL", lab.Explain(err)+"\n"
		}
		fmt.Printf("%-5s %-30s %s\n%s", verdict, s.name, time.Since(start).Round(time.Second), why)
	}
	if ran == 0 || failed > 0 {
		return fmt.Errorf("%d scenarios ran (-run %s), and %d of them failed", ran, match, failed)
	}
	return nil
}
