// Package plan decides what is measured, how long and in which order, and measures it: on paths
// between pods of labs on this machine, or on one path to another machine.
//
// The paths take turns, round after round, so that a machine that becomes slower or faster does so for all of
// them. To measure every frame size takes long, so there are fewer rounds of that (Config.SweepRounds).
package plan

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"weft/bench/load"
	"weft/bench/report"
)

// Config says what is measured, and for how long. Begin with Default, Quick or Full.
type Config struct {
	// Rounds is how often each path is measured, SweepRounds how often with each frame size.
	// PingRounds is how often it is measured by a ping-pong, which varies so much that a few rounds say little.
	Rounds, SweepRounds, PingRounds int
	// TCP, Trial and Ping are how long one measurement of throughput, one trial of a packet
	// rate (a search makes about ten) and one ping-pong last. WarmUp is how long TCP runs before it is measured.
	TCP, WarmUp, Trial, Ping time.Duration
	// Size is the payload of the datagrams and of the ping-pong, in bytes.
	Size int
	// Frames are the sizes of kinds Frames and Super: Ethernet frames on the pod's link with
	// header and check sequence (18 bytes), as RFC 2544 counts.
	Frames []int
	// Loss is the share of the datagrams that may be lost.
	Loss float64
	// Kinds are the kinds of measures to take.
	Kinds []report.Kind
}

// Standard returns the standard frame sizes of RFC 2544, section 9.1.
func Standard() []int { return []int{64, 128, 256, 512, 1024, 1280, 1518} }

// Default takes two minutes and a half with six paths.
func Default() Config {
	return Config{
		Rounds: 3, SweepRounds: 1, PingRounds: 10, TCP: 800 * time.Millisecond, WarmUp: 200 * time.Millisecond,
		Trial: 150 * time.Millisecond, Ping: 150 * time.Millisecond,
		Size: 64, Frames: []int{64, 512, 1518}, Loss: 0.005,
		Kinds: []report.Kind{report.TCP, report.Packets, report.Mixed, report.Frames, report.PingPong,
			report.Memory},
	}
}

// Quick takes well under a minute. That is enough to see that everything works, but not to compare.
func Quick() Config {
	c := Default()
	c.Rounds, c.PingRounds, c.TCP, c.WarmUp, c.Trial, c.Ping = 1, 1, 300*time.Millisecond, 150*time.Millisecond,
		50*time.Millisecond, 150*time.Millisecond
	c.Frames = []int{64, 1518}
	return c
}

// Full has so many and so long rounds that another run finds nearly the same medians.
func Full() Config {
	c := Default()
	c.Rounds, c.Frames, c.Kinds = 7, Standard(), report.Kinds()
	c.TCP, c.WarmUp, c.Trial, c.Ping = 2*time.Second, 300*time.Millisecond, 300*time.Millisecond,
		400*time.Millisecond
	return c
}

// Check returns nil if c can be measured, else an error with every fault.
func (c Config) Check() error {
	var faults []error
	for _, k := range c.Kinds {
		if !slices.Contains(report.Kinds(), k) {
			faults = append(faults, fmt.Errorf("there is no measure %q: it is one of %v", k, report.Kinds()))
		}
	}
	if c.Rounds < 1 || c.SweepRounds < 1 || c.PingRounds < 1 || c.TCP <= 0 || c.WarmUp <= 0 || c.Trial <= 0 ||
		c.Ping <= 0 {
		faults = append(faults, errors.New("rounds and times are to be positive"))
	}
	if c.Size < load.MinPayload || c.Size > 1400 {
		faults = append(faults, fmt.Errorf("a size of %d bytes: want %d to 1400", c.Size, load.MinPayload))
	}
	if c.Loss <= 0 || c.Loss >= 1 {
		faults = append(faults, fmt.Errorf("a loss of %g: want more than 0 and less than 1", c.Loss))
	}
	for _, f := range c.Frames {
		if f < 64 || f > 65535 {
			faults = append(faults, fmt.Errorf("a frame of %d bytes: want 64 to 65535", f))
		}
	}
	return errors.Join(faults...)
}

// longer returns c with measurements that last so many times as long.
func (c Config) longer(times time.Duration) Config {
	for _, d := range []*time.Duration{&c.TCP, &c.WarmUp, &c.Trial, &c.Ping} {
		*d *= times
	}
	return c
}

// settings returns the part of c that is in a report.
func (c Config) settings() report.Settings {
	return report.Settings{
		Rounds: c.Rounds, SweepRounds: c.SweepRounds, PingRounds: c.PingRounds, TCPSeconds: c.TCP.Seconds(),
		TrialSeconds: c.Trial.Seconds(),
		PingSeconds:  c.Ping.Seconds(), LossLimit: c.Loss, FrameBytes: c.Frames,
	}
}
