package doctor

import (
	"slices"

	"weft/cmd/internal/control"
	"weft/lease"
)

// savedByOthers looks whether the last state is that of another weftd, which so has the same directory. weftd
// saves its own as soon as it has a lease, and notes if it cannot.
func (f *Facts) savedByOthers() findings {
	l, saved := f.Daemon.Status.Lease, f.Network.Saved
	switch {
	case l == nil || !l.Held || saved.Subnets == (lease.Subnets{}):
	case saved.Subnets == lease.Subnets{V4: l.Subnet, V6: l.IPv6Subnet} &&
		(saved.Node() == f.Daemon.Status.NodeID || f.Settings.Kube.On):
	case !f.Daemon.Status.Ready, slices.Contains(f.Daemon.Status.NoteCodes, control.CacheNotSaved):
		// it may have saved nothing yet
	default:
		return says(Warning, "the last state is that of %s with %s, and a start without the store would not "+
			"know this node's", saved.Called(), saved.Subnets).about(f.Settings.CacheDir).
			because("another weftd has the same --cache-dir, or somebody copied the file").
			do("pgrep -af weftd shows the flags of each here; give each its own --cache-dir, and restart this one")
	}
	return nil
}
