package events

import (
	"log/slog"
	"strings"
)

// Kind says what happened.
type Kind string

// The kinds. Scripts rely on them, so that none changes its meaning; docs/events.md explains each.
const (
	Started          Kind = "started"
	Stopped          Kind = "stopped"
	Waiting          Kind = "waiting"
	Ready            Kind = "ready"
	NotReady         Kind = "not_ready"
	LeaseAcquired    Kind = "lease_acquired"
	LeaseState       Kind = "lease_state"
	LeaseLate        Kind = "lease_renewed_late"
	LeasePutBack     Kind = "lease_put_back"
	LeaseContested   Kind = "lease_contested"
	LeaseReleased    Kind = "lease_released"
	SubnetChanged    Kind = "subnet_changed"
	SubnetFile       Kind = "subnet_file"
	PeerCome         Kind = "peer_come"
	PeerGone         Kind = "peer_gone"
	PeerChanged      Kind = "peer_changed"
	PeerUnused       Kind = "peer_unused"
	PeerUnanswering  Kind = "peer_unanswering"
	PeerLossy        Kind = "peer_lossy"
	PeerHeldBack     Kind = "peer_held_back"
	PodQueue         Kind = "pod_queue"
	RecordRejected   Kind = "record_rejected"
	StoreLost        Kind = "store_lost"
	StoreBack        Kind = "store_back"
	RemovalsDoubted  Kind = "removals_disbelieved"
	Config           Kind = "config"
	UnderlayChosen   Kind = "underlay_chosen"
	UnderlayLost     Kind = "underlay_lost"
	RoutesRepaired   Kind = "routes_repaired"
	RulesRepaired    Kind = "rules_repaired"
	RulesInPlace     Kind = "rules_in_place"
	DeviceRepaired   Kind = "device_repaired"
	TakenOver        Kind = "taken_over"
	PathChosen       Kind = "path_chosen"
	OutletChosen     Kind = "outlet_chosen"
	OffloadLost      Kind = "offload_lost"
	PathMTU          Kind = "path_mtu"
	ReceiveJoining   Kind = "receive_joining"
	KubernetesStatus Kind = "kubernetes_status"
	LeftOut          Kind = "left_out"
	Fault            Kind = "fault"
	Note             Kind = "note"
)

// saying maps the beginnings of the log's messages to what they are about.
type saying struct {
	begins string
	kind   Kind
}

// sayings are in the order in which they are tried. A message of which none is the beginning is a Fault if it is a
// warning or an error, and else a Note.
func sayings() []saying {
	return []saying{
		{"weftd starts", Started}, {"weftd ends", Stopped}, {"waiting", Waiting}, {"ready", Ready}, {"not ready", NotReady},
		{"leases are in", Note}, {"lease acquired", LeaseAcquired}, {"lease released", LeaseReleased}, {"the lease was renewed late", LeaseLate}, {"lease", LeaseState},
		{"our record ", LeasePutBack}, {"what we write to our Node is changed", LeasePutBack}, {"nobody answers where our Node", LeasePutBack},
		{"the other owner is silent", LeaseContested}, {"another weftd asks", LeaseContested},
		{"this node's subnet is another", SubnetChanged}, {"the podCIDR of our Node is another", SubnetChanged}, {"pods of a former subnet", SubnetChanged},
		{"subnet file", SubnetFile}, {"the subnet file", SubnetFile},
		{"peer not used", PeerUnused}, {"peers whose next hop", PeerUnanswering}, {"ICMP says that datagrams do not reach", PeerUnanswering}, {"held back", PeerHeldBack}, {"no longer held back", PeerHeldBack},
		{"pod's queue ", PodQueue},
		{"a record is not believed", RecordRejected}, {"removals are not believed", RemovalsDoubted},
		{"the store does not answer", StoreLost}, {"the API server does not answer", StoreLost},
		{"the store answers again", StoreBack}, {"the API server answers again", StoreBack},
		{"taking up the network configuration", Config}, {"the network configuration", Config}, {"starting over", Config},
		{"underlay lost", UnderlayLost}, {"underlay", UnderlayChosen},
		{"repaired what was changed", RoutesRepaired}, {"rules were changed by somebody else", RulesRepaired},
		{"rules in place", RulesInPlace}, {"all rules are in place", RulesInPlace},
		{"device is gone", DeviceRepaired}, {"the process that encrypts", DeviceRepaired}, {"making the device anew", DeviceRepaired}, {"port of the data plane died", DeviceRepaired}, {"ingress filter is gone", DeviceRepaired},
		{"taken over", TakenOver}, {"removed what another backend left", TakenOver}, {"removed the kernel's vxlan device", TakenOver}, {"rules of an earlier run", TakenOver},
		{"path raw is not possible", PathChosen}, {"paths raw and socket need", PathChosen}, {"no tunnel GSO", PathChosen},
		{"superpackets leave", OutletChosen}, {"superpackets are cut", OutletChosen}, {"offload lost", OffloadLost},
		{"path MTU", PathMTU}, {"a packet-too-big message", PathMTU},
		{"turned rx-udp-gro-forwarding", ReceiveJoining}, {"rx-udp-gro-forwarding", ReceiveJoining}, {"somebody turned rx-udp", ReceiveJoining}, {"gave back what", ReceiveJoining},
		{"annotations written", KubernetesStatus}, {"condition written", KubernetesStatus},
	}
}

// kindOf returns the kind of a line of the log.
func kindOf(sayings []saying, level slog.Level, message string) Kind {
	for _, s := range sayings {
		if strings.HasPrefix(message, s.begins) {
			return s.kind
		}
	}
	if level >= slog.LevelWarn {
		return Fault
	}
	return Note
}

// probed returns the kind of what the probes say of peers, and whether it has one. The message does not tell it, since it begins with names, which
// peers choose.
func probed(details map[string]string) (Kind, bool) {
	k := Kind(details["kind"])
	return k, details["component"] == "probe" && (k == PeerUnanswering || k == PeerLossy)
}

// Kinds lists all kinds but LeftOut, which is only a detail of others.
func Kinds() []string {
	var out []string
	for _, k := range [...]Kind{
		Started, Stopped, Waiting, Ready, NotReady, LeaseAcquired, LeaseState, LeaseLate, LeasePutBack, LeaseContested, LeaseReleased,
		SubnetChanged, SubnetFile, PeerCome, PeerGone, PeerChanged, PeerUnused, PeerUnanswering, PeerLossy, PeerHeldBack, PodQueue, RecordRejected, StoreLost,
		StoreBack, RemovalsDoubted, Config, UnderlayChosen, UnderlayLost, RoutesRepaired, RulesRepaired, RulesInPlace, DeviceRepaired, TakenOver,
		PathChosen, OutletChosen, OffloadLost, PathMTU, ReceiveJoining, KubernetesStatus, Fault, Note,
	} {
		out = append(out, string(k))
	}
	return out
}
