package check

import (
	"context"
	"slices"

	"weft/cmd/internal/doctor"
	"weft/cmd/internal/options"
)

// lookAround adds what weft doctor's checks find on this host that would keep packets from passing. They are remarks: a
// start of weftd succeeds all the same. What this check says itself is left out.
func (r *report) lookAround(ctx context.Context, cfg options.Config) {
	said := []string{"daemon", "settings", "tun-device", "kernel-feature", "cap-net-admin", "cap-net-raw", "store-settings", "network-config", "config-keys", "config-running",
		"overlap", "identity", "interface", "mtu", "peer-route", "peer-answers"}
	facts := doctor.Gather(ctx, doctor.Request{Settings: &doctor.Settings{Config: cfg, From: "the flags and variables given here"}, Offline: cfg.Offline})
	for _, x := range doctor.WorstFirst(doctor.Examine(facts).Findings) {
		if x.Verdict == doctor.OK || x.Verdict == doctor.Unknown || slices.Contains(said, x.ID) {
			continue
		}
		r.remark("%s, %s: %s", x.ID, x.Verdict, x)
	}
}
