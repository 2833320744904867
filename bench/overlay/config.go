package overlay

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weft/bench/load"
	"weft/bench/plan"
	"weft/bench/report"
	"weft/test/lab"
)

// Config says which rungs are measured, and how.
type Config struct {
	plan.Config
	// Rungs are the names of those to measure; all by default.
	Rungs []string
	// Wires are the names of the lab.WireKinds to measure on, one after the other; lab.WireFull by default.
	Wires []string
	// Weftd is the daemon; by default it is built from this module.
	Weftd string
	// JSON and HTML are files to write the result to; none by default.
	JSON, HTML string
}

// ParseConfig reads words such as "rounds=9 tcp=3s rungs=vxlan,socket measures=tcp,packets". The keys are
// those of Config in lower case; rungs and measures may be "all". Where s says nothing, the rungs are Usual,
// the wires are uso and plain, and the rest is as in plan.Default, but with more and longer rounds and
// without the frame sizes, which would take half of the time. The error has every fault.
func ParseConfig(s string) (Config, error) {
	c := Config{Config: plan.Default(), Rungs: Usual(),
		Wires: []string{lab.WireUSO.String(), lab.WirePlain.String()}}
	c.Rounds, c.TCP, c.WarmUp, c.Trial, c.Ping = 5, time.Second, 300*time.Millisecond, 200*time.Millisecond,
		400*time.Millisecond
	c.Kinds = []report.Kind{report.TCP, report.Packets, report.Mixed, report.PingPong,
		report.Memory}
	var faults []error
	for _, word := range strings.Fields(s) {
		key, value, _ := strings.Cut(word, "=")
		if err := c.Set(key, value); err != nil {
			faults = append(faults, fmt.Errorf("%q: %w", word, err))
		}
	}
	return c, errors.Join(append(faults, c.Check())...)
}

// Check returns nil if c can be measured, else an error with every fault.
func (c Config) Check() error {
	_, err := choose(c.Rungs)
	_, wrong := c.wires()
	return errors.Join(err, wrong, c.Config.Check())
}

// wires returns the kinds that c.Wires names, each once.
func (c Config) wires() (kinds []lab.WireKind, err error) {
	for _, name := range c.Wires {
		k, wrong := lab.ParseWireKind(name)
		if err = errors.Join(err, wrong); wrong == nil && !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) == 0 {
		kinds = []lab.WireKind{lab.WireFull}
	}
	return kinds, err
}

// Set sets one key.
func (c *Config) Set(key, value string) (err error) {
	switch key {
	case "rounds":
		c.Rounds, err = strconv.Atoi(value)
	case "sweeps":
		c.SweepRounds, err = strconv.Atoi(value)
	case "pings":
		c.PingRounds, err = strconv.Atoi(value)
	case "tcp":
		c.TCP, err = time.ParseDuration(value)
	case "trial":
		c.Trial, err = time.ParseDuration(value)
	case "ping":
		c.Ping, err = time.ParseDuration(value)
	case "size":
		c.Size, err = strconv.Atoi(value)
	case "frames":
		c.Frames = nil
		for word := range strings.SplitSeq(value, ",") {
			n, wrong := strconv.Atoi(word)
			c.Frames, err = append(c.Frames, n), errors.Join(err, wrong)
		}
	case "receive":
		switch value {
		case load.Drain.String():
			c.Receive = load.Drain
		case load.Wait.String():
			c.Receive = load.Wait
		default:
			err = errors.New("is not one of drain, wait")
		}
	case "loss":
		c.Loss, err = strconv.ParseFloat(value, 64)
	case "rungs":
		if c.Rungs = nil; value != "all" {
			c.Rungs = strings.Split(value, ",")
		}
	case "wires":
		c.Wires = nil
		for word := range strings.SplitSeq(value, ",") {
			c.Wires = append(c.Wires, word)
		}
	case "measures":
		if value == "all" {
			c.Kinds = report.Kinds()
			break
		}
		c.Kinds = nil
		for word := range strings.SplitSeq(value, ",") {
			c.Kinds = append(c.Kinds, report.Kind(word))
		}
	case "weftd":
		c.Weftd = value
	case "json":
		c.JSON = value
	case "html":
		c.HTML = value
	default:
		err = errors.New("is not one of rounds, sweeps, pings, tcp, trial, ping, size, frames, receive, loss, " +
			"rungs, wires, measures, weftd, json, html")
	}
	return err
}
