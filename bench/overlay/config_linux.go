package overlay

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weft/bench/load"
	"weft/test/lab"
)

// Rung is one way of carrying packets.
type Rung struct {
	Name   string
	Driver lab.Driver
	// Path is weftd's, with driver Weftd.
	Path string
}

// Reference is the name of the rung that ratios are taken to.
const Reference = "vxlan"

// Rungs are all of them, in the order of a round.
func Rungs() []Rung {
	return []Rung{
		{"host-gw", lab.KernelHostGW, ""},
		{Reference, lab.KernelVXLAN, ""},
		{"portable", lab.Weftd, "portable"},
		{"socket", lab.Weftd, "socket"},
	}
}

// Config says what is measured, and for how long.
type Config struct {
	// Rounds is how often each rung is measured; 5 by default.
	Rounds int
	// TCP, Trial and Ping are how long one measurement of throughput, one trial of a packet
	// rate (a search makes about ten) and one ping-pong last: 1 s, 200 ms and 400 ms by default.
	TCP, Trial, Ping time.Duration
	// Size is the payload of the datagrams and of the ping-pong, in bytes; 64 by default.
	Size int
	// Receive is what the datagrams' receiver does between them; load.Drain by default.
	Receive load.ReceiveMode
	// Loss is the share of the datagrams that may be lost; 0.005 by default.
	Loss float64
	// Rungs and Measures name a choice; all by default.
	Rungs, Measures []string
	// Weftd is the daemon; by default it is built from this module.
	Weftd string
}

// ParseConfig reads words such as "rounds=9 tcp=3s rungs=vxlan,socket measures=tcp,packets".
// The keys are those of Config in lower case. The error has every fault.
func ParseConfig(s string) (Config, error) {
	c := Config{Rounds: 5, TCP: time.Second, Trial: 200 * time.Millisecond, Ping: 400 * time.Millisecond, Size: 64, Receive: load.Drain, Loss: 0.005}
	var faults []error
	for _, word := range strings.Fields(s) {
		key, value, _ := strings.Cut(word, "=")
		if err := c.set(key, value); err != nil {
			faults = append(faults, fmt.Errorf("%q: %w", word, err))
		}
	}
	for _, n := range c.Rungs {
		if !slices.ContainsFunc(Rungs(), func(r Rung) bool { return r.Name == n }) {
			faults = append(faults, fmt.Errorf("there is no rung %q", n))
		}
	}
	for _, n := range c.Measures {
		if !slices.ContainsFunc(measures(c), func(m measure) bool { return m.name == n }) {
			faults = append(faults, fmt.Errorf("there is no measure %q", n))
		}
	}
	if c.Rounds < 1 || c.TCP <= 0 || c.Trial <= 0 || c.Ping <= 0 || c.Size < 1 || c.Size > 1400 || c.Loss <= 0 || c.Loss >= 1 {
		faults = append(faults, errors.New("rounds, times, size (to 1400) and loss (below 1) are to be positive"))
	}
	return c, errors.Join(faults...)
}

func (c *Config) set(key, value string) (err error) {
	switch key {
	case "rounds":
		c.Rounds, err = strconv.Atoi(value)
	case "tcp":
		c.TCP, err = time.ParseDuration(value)
	case "trial":
		c.Trial, err = time.ParseDuration(value)
	case "ping":
		c.Ping, err = time.ParseDuration(value)
	case "size":
		c.Size, err = strconv.Atoi(value)
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
		c.Rungs = strings.Split(value, ",")
	case "measures":
		c.Measures = strings.Split(value, ",")
	case "weftd":
		c.Weftd = value
	default:
		err = errors.New("is not one of rounds, tcp, trial, ping, size, receive, loss, rungs, measures, weftd")
	}
	return err
}

func (c Config) rungs() (l []Rung) {
	for _, r := range Rungs() {
		if len(c.Rungs) == 0 || slices.Contains(c.Rungs, r.Name) {
			l = append(l, r)
		}
	}
	return l
}
