// Command simulate plays simulated clusters of many seeds, and prints of each that breaks a rule what
// is left of its script and of its history when all that does not matter is left out.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"weft/test/sim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit status: 0 if no seed breaks a rule, 1 if one does, and 2 if it was asked for what
// there is not.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	flags.SetOutput(stderr)
	from := flags.Uint64("from", 0, "the first seed")
	seeds := flags.Uint64("seeds", 1000, "how many seeds")
	kube := flags.Bool("kube", false, "clusters whose store is the Kubernetes API, instead of etcd")
	script := flags.String("script", "", "a script in JSON, instead of seeds")
	all := flags.Bool("all", false, "go on after a seed that breaks a rule, and only name it")
	short := flags.Bool("short", false, "do not shrink what breaks a rule")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	debug.SetGCPercent(800) // a run leaves nothing behind
	seen := new(sim.Seen)
	if *script != "" {
		s, err := sim.ReadScript(*script)
		if err != nil {
			fmt.Fprintln(stderr, "simulate:", err)
			return 2
		}
		r := sim.Run(s, true, seen)
		fmt.Fprint(stdout, r.History)
		if r.Fault != nil {
			fmt.Fprintln(stdout, r.Fault)
			return 1
		}
		return 0
	}
	faults, seed := 0, *from
	for ; seed < *from+*seeds && ctx.Err() == nil; seed++ {
		if done := seed - *from; done > 0 && done%10000 == 0 {
			fmt.Fprintf(stdout, "%d seeds, %d of them broke a rule, %d steps\n", done, faults, seen.Steps)
		}
		s := sim.Generate(seed)
		if *kube {
			s = sim.GenerateKube(seed)
		}
		f := sim.Run(s, false, seen).Fault
		if f == nil {
			continue
		}
		faults++
		fmt.Fprintf(stdout, "seed %d after %d: %s: %s\n", seed, seed-*from, f.Rule, f.What)
		if *all {
			continue
		}
		if !*short {
			small := sim.Shrink(f)
			fmt.Fprintf(stdout, "%s%s%s\n", sim.Run(small, true, new(sim.Seen)).History, small, small.JSON())
		}
		return 1
	}
	fmt.Fprintf(stdout, "%d seeds, %d of them broke a rule, %d steps; what met what within ten seconds:\n%s\n",
		seed-*from, faults, seen.Steps, seen)
	if faults > 0 {
		return 1
	}
	return 0
}
