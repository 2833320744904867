package control

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"weft/lease"
	"weft/routing"
	"weft/routing/hostrules"
	"weft/tunnel"
	"weft/tunnel/port"
)

// Status returns the page of s, with what follows from it.
func (s *Snapshot) Status(reasons, notes []Verdict) Status {
	st := Status{
		Version: s.Version, Name: s.Name, NodeID: s.NodeID, PID: os.Getpid(),
		StartedAt: s.Started, Uptime: int64(s.At.Sub(s.Started) / time.Second),
		Ready: len(reasons) == 0, NotReady: Texts(reasons), NotReadyCodes: Codes(reasons),
		Notes: Texts(notes), NoteCodes: Codes(notes),
		Store: s.Store, Cache: s.Cache, Namespace: s.Namespace, Custody: s.Custody, Pods: s.Pods,
	}
	if !s.InUse() {
		return st
	}
	st.Lease, st.Alarm = leaseStatus(s.Lease), s.Lease.Alarm
	st.Peers, st.Rejected = s.Lease.Peers, len(s.Lease.Rejected)
	st.Backend, st.Underlay = backendStatus(s.Backend), underlayStatus(s.Backend)
	if s.Backend.Hook.Controller != "" {
		st.Controller = &s.Backend.Hook
	}
	st.Backend.Port = s.Port
	st.Config, st.Rules, st.Counters = s.Config, s.Backend.Rules, counters(s)
	if s.StoreCut != "" {
		st.Backend.Notes = append(st.Backend.Notes, s.StoreCut)
	}
	return st
}

func leaseStatus(st lease.Status) *Lease {
	if st.Own.Subnets == (lease.Subnets{}) {
		return nil
	}
	l := &Lease{
		Subnet: st.Own.V4, IPv6Subnet: st.Own.V6, Held: st.State == lease.Held,
		Reservation: st.Own.Reservation, Expires: st.Own.Expires,
	}
	if st.Err != nil {
		l.Detail = st.Err.Error()
	}
	return l
}

func backendStatus(b routing.Status) Backend {
	out := Backend{
		Type: b.Type, Path: b.Path, Encrypt: b.Encrypt, Device: b.Device(), MTU: b.MTU, InPlace: b.InPlace,
		LastReconcile: b.LastReconcile, Error: b.LastError,
	}
	out.Notes = slices.Clone(b.Notes)
	for _, a := range b.Adopted {
		out.Notes = append(out.Notes, "taken over from flannel: "+a)
	}
	for _, s := range b.Skipped {
		out.Notes = append(out.Notes, fmt.Sprintf("peer %s is not used: %s", beside(s.Peer, s.Node, s.Address),
			s.Reason))
	}
	return out
}

func underlayStatus(b routing.Status) Underlay {
	u := b.Underlay
	out := Underlay{
		Link: u.Name, MTU: u.MTU, Lost: b.UnderlayLost, Forwarding: b.Forwarding,
		Address: u.Addr4, IPv6Address: u.Addr6, PublicIP: u.Ext4, PublicIPv6: u.Ext6,
		DevicesUnknown: b.UnderlayDevices.Unknown,
	}
	for _, d := range b.UnderlayDevices.List {
		out.Devices = append(out.Devices, Device{Name: d.Name, Features: d.Features})
	}
	return out
}

func counters(s *Snapshot) (c Counters) {
	c.Devices = s.Devices
	if s.Plane == nil {
		return c
	}
	t := &s.Plane.Stats
	c.Egress, c.Ingress = flow(t.Egress), flow(t.Ingress)
	c.ICMPSent, c.ICMPSuppressed, c.Fragmented, c.Completed = t.ICMPSent, t.ICMPSuppressed, t.Fragmented,
		t.Completed
	c.SocketOverflow, c.HeldBack, c.DeviceDropped = t.SocketOverflow, t.HeldBack, s.Plane.Dropped
	c.Workers = s.Plane.Workers
	for _, o := range t.Offloads {
		c.Offloads = append(c.Offloads, Offload{
			Name: o.Offload.String(), State: o.State.String(), Calls: o.Calls, Packets: o.Segments,
		})
	}
	for _, o := range t.Outlets {
		c.Outlets = append(c.Outlets, Outlet{Local: o.Local, Outlet: o.Now.String(), Because: o.Chosen.Why})
	}
	return c
}

func flow(f tunnel.Flow) Flow {
	return Flow{
		Received: f.Received, Delivered: f.Delivered,
		ReceivedBytes: f.ReceivedBytes, DeliveredBytes: f.DeliveredBytes, Drops: drops(f.Drops),
	}
}

func drops(n [port.NumDropReasons]uint64) []Drop {
	var out []Drop
	for r := range port.NumDropReasons {
		if n[r] > 0 {
			out = append(out, Drop{Reason: r.String(), Packets: n[r], Admit: r.Admit()})
		}
	}
	return out
}

// beside returns a node's name with its identity and address, for a sentence.
func beside(name, id string, address netip.Addr) string {
	switch {
	case id == "" || id == name:
		if !address.IsValid() {
			return name
		}
		return name + " (" + address.String() + ")"
	case !address.IsValid():
		return name + " (id " + id + ")"
	}
	return name + " (id " + id + ", " + address.String() + ")"
}

// Rules is the state of the host's firewall rules, which say what is masqueraded, what is forwarded, and who
// may send to the overlay's port.
type Rules = hostrules.Status

// Config has the network configuration in use, and says how the one in the store or in the file differs.
type Config struct {
	// InUse is the text of the configuration that is in effect.
	InUse string `json:"inUse,omitempty"`
	// Differs says that the store has another one, or none; Other is its text, shortened.
	Differs bool   `json:"differs"`
	Other   string `json:"other,omitempty"`
	// Faults say why Other cannot be used, by key and value.
	Faults []string `json:"faults,omitempty"`
	// LastGood says that weftd could not use Other when it started. The node runs on its last good
	// configuration, and adopts a good one as soon as there is one.
	LastGood bool `json:"lastGood,omitempty"`
	// Changes are what a restart would change.
	Changes []string `json:"changes,omitempty"`
	// Unknown are keys that nobody reads, each with the key that was most likely meant.
	Unknown []string `json:"unknown,omitempty"`
}
