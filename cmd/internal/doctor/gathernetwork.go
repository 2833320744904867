package doctor

import (
	"errors"
	"os"
	"strings"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/lease/belief"
	"weft/lease/subnetenv"
	"weft/routing"
)

// readNetwork finds the network config, the nodes' records, and what was there before.
func readNetwork(f *Facts) Network {
	var n Network
	cfg := f.Settings
	switch stored := f.Store.Snapshot; {
	case cfg.NotKnown != "":
	case cfg.Kube.On, cfg.NetConfigGiven && stored.Config == nil && (f.Store.Err == nil || !f.Store.Asked):
		n.From = FileSource + cfg.NetConfigPath
		n.Raw, n.Err = os.ReadFile(cfg.NetConfigPath)
	case f.Store.Asked && f.Store.Err == nil && stored.Config == nil:
		n.From = cfg.Store.Prefix + "/config"
		n.Err = errors.New("the store has no network config, and a start of weftd would wait for it")
	case stored.Config != nil:
		n.From, n.Raw = cfg.Store.Prefix+"/config", stored.Config
	}
	if n.Err == nil && n.Raw != nil {
		n.Network, n.Err = routing.Parse(n.Raw)
	}
	if c := f.Daemon.Status.Config; f.Daemon.Answers() && c.InUse != "" {
		if used, err := routing.Parse([]byte(c.InUse)); err == nil {
			if n.From == "" {
				n.From = "the running weftd"
			} else {
				used.Raw, used.Unknown = n.Raw, n.Unknown // what is said of them is about From
			}
			n.Network = used
		}
	}
	var cached belief.Cached
	if !f.hidden() {
		if c, err := belief.NewCache(cfg.CacheDir, cfg.Store.Prefix).Load(); err == nil {
			cached, n.Own = c, c.Own.Subnets
			if last, err := routing.Parse(c.Memory.Config); err == nil {
				n.Last = last
			}
		}
		store := belief.CachedStore(cfg.CacheDir)
		if strings.HasPrefix(store, "/") && store != cfg.Store.Prefix { // one of etcd's, and another
			n.LastStore = store
		}
		if any, err := belief.NewCache(cfg.CacheDir, store).Load(); err == nil {
			n.Saved = any.Own
		}
	}
	n.readRecords(f, cached)
	if len(n.Networks()) == 0 && n.Err == nil && n.HasLast() {
		n.Network, n.From = n.Last, "weftd's last run"
	}
	return n
}

// readRecords takes the records of the store, else those of the running weftd, else those of its last run.
func (n *Network) readRecords(f *Facts, cached belief.Cached) {
	if l := f.Daemon.Status.Lease; f.Daemon.Answers() && l != nil {
		n.Own = lease.Subnets{V4: l.Subnet, V6: l.IPv6Subnet}
	}
	switch {
	case f.Store.What == etcdStore && f.Store.Asked && f.Store.Err == nil:
		n.RecordsFrom = etcdStore
		for _, r := range f.Store.Snapshot.Records {
			n.Records = append(n.Records, *r)
		}
	case f.Daemon.Answers() && f.Daemon.Leases.Source == "": // it has none to tell
	case f.Daemon.Answers():
		n.RecordsFrom, n.Records = "the running weftd", recordsOf(f.Daemon.Leases)
	case len(cached.Memory.Peers) > 0:
		n.RecordsFrom = "weftd's last run"
		for _, p := range cached.Memory.Peers {
			n.Records = append(n.Records, *p.Record)
		}
	}
	if n.Own == (lease.Subnets{}) && !f.hidden() {
		if env, err := subnetenv.Read(f.Settings.SubnetFile); err == nil {
			n.Own = lease.Subnets{V4: env.Subnet.Masked(), V6: env.IPv6Subnet.Masked()}
		}
	}
}

// hidden says that weftd runs, and that its files may be those of a mount namespace that is not known.
func (f *Facts) hidden() bool { return f.Settings.NotKnown != "" && f.Daemon.Answers() }

// recordsOf are the records that the daemon knows, for a store that was not read.
func recordsOf(l control.Leases) (out []lease.Record) {
	for _, r := range l.Leases {
		x := lease.Record{Subnets: lease.Subnets{V4: r.Subnet, V6: r.IPv6Subnet}, Expires: r.Expires,
			Reservation: r.Reservation, Revision: r.Revision,
			Attrs: lease.Attrs{PublicIP: r.PublicIP, PublicIPv6: r.PublicIPv6, BackendType: r.Backend}}
		if r.Node != "" {
			x.Weft = &lease.Weft{Node: r.Node}
		}
		out = append(out, x)
	}
	return out
}
