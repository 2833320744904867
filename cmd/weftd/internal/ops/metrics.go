package ops

import (
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weft/lease"
	"weft/tunnel"
)

// metric is one family: what it is called, and how it is read from a Snapshot.
// read calls emit once for each set of label values.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	read       func(s *Snapshot, emit func(v float64, labels ...string))
}

// families lists every metric of ours, in the order of docs/metrics.md.
func families() []metric {
	var all []metric
	all = append(all, nodeFamilies()...)
	all = append(all, packetFamilies()...)
	all = append(all, kernelFamilies()...)
	all = append(all, rulesFamilies()...)
	all = append(all, peerFamilies()...)
	all = append(all, probeFamilies()...)
	return all
}

// gauge and counter make metrics without labels.
func gauge(name, help string, v func(*Snapshot) float64) metric {
	return metric{name: name, help: help, kind: prometheus.GaugeValue,
		read: func(s *Snapshot, emit func(float64, ...string)) { emit(v(s)) }}
}

func counter(name, help string, v func(*Snapshot) uint64) metric {
	return metric{name: name, help: help, kind: prometheus.CounterValue,
		read: func(s *Snapshot, emit func(float64, ...string)) { emit(float64(v(s))) }}
}

func nodeFamilies() []metric {
	return []metric{
		{"weft_build_info", "Always 1; the labels say what runs.", prometheus.GaugeValue, []string{"version", "goversion", "node"},
			func(s *Snapshot, emit func(float64, ...string)) { emit(1, s.Version, runtime.Version(), s.Node) }},
		gauge("weft_ready", "1 if /readyz says so.", func(s *Snapshot) float64 { return truth(s.Ready) }),
		gauge("weft_lease_held", "1 if the store has confirmed this node's lease and it has not ended.", func(s *Snapshot) float64 { return truth(s.LeaseHeld) }),
		gauge("weft_lease_expiry_timestamp_seconds", "When this node's lease ends; 0 if it has no end or is not known.", func(s *Snapshot) float64 { return unix(s.LeaseExpires) }),
		gauge("weft_store_up", "1 while the store answers.", func(s *Snapshot) float64 { return truth(s.StoreUp) }),
		gauge("weft_store_last_seen_timestamp_seconds", "When the store last answered; 0 if never.", func(s *Snapshot) float64 { return unix(s.StoreSeen) }),
		gauge("weft_store_revision", "The store's revision of the set in force.", func(s *Snapshot) float64 { return float64(s.StoreRevision) }),
		gauge("weft_config_changed", "1 while the store's network configuration is not the one in use.", func(s *Snapshot) float64 { return truth(s.ConfigChanged) }),
		gauge("weft_config_fault", "1 while the store's network configuration cannot be used: not valid, gone, or without a backend that starts here.", func(s *Snapshot) float64 { return truth(s.ConfigFault) }),
		gauge("weft_config_last_good", "1 while the node runs on its last good network configuration because a start could not use the store's.", func(s *Snapshot) float64 { return truth(s.ConfigLastGood) }),
		noPeerFamily(),
		gauge("weft_removals_disbelieved", "1 while the store lacks peers and is not believed (an alarm).", func(s *Snapshot) float64 { return truth(s.Alarm) }),
		{"weft_records_rejected", "Records in the store that are not used.", prometheus.GaugeValue, []string{"reason"},
			func(s *Snapshot, emit func(float64, ...string)) {
				for _, reason := range lease.RejectReasons() {
					emit(float64(s.Rejected[reason]), reason.String())
				}
			}},
		gauge("weft_cache_saved_timestamp_seconds", "When the last good set was written to disk; 0 if never.", func(s *Snapshot) float64 { return unix(s.CacheSaved) }),
	}
}

func packetFamilies() []metric {
	flows := func(name, help string, v func(*tunnel.Flow) uint64) metric {
		return metric{name, help, prometheus.CounterValue, []string{"direction"}, func(s *Snapshot, emit func(float64, ...string)) {
			emit(float64(v(&s.Tunnel.Egress)), "egress")
			emit(float64(v(&s.Tunnel.Ingress)), "ingress")
		}}
	}
	workers := func(name, help string, v func(*tunnel.WorkerStats) float64) metric {
		return metric{name, help, prometheus.CounterValue, []string{"worker"}, func(s *Snapshot, emit func(float64, ...string)) {
			for i := range s.Workers {
				emit(v(&s.Workers[i]), strconv.Itoa(i))
			}
		}}
	}
	drops := func(s *Snapshot, emit func(float64, ...string)) {
		for r := range tunnel.NumDropReasons {
			emit(float64(s.Tunnel.Egress.Drops[r]), "egress", r.String())
			emit(float64(s.Tunnel.Ingress.Drops[r]), "ingress", r.String())
		}
	}
	return []metric{
		flows("weft_received_packets_total", "Inner packets taken from the host (egress) or from the underlay (ingress).", func(f *tunnel.Flow) uint64 { return f.Received }),
		flows("weft_received_bytes_total", "Inner bytes taken from the host (egress) or from the underlay (ingress).", func(f *tunnel.Flow) uint64 { return f.ReceivedBytes }),
		flows("weft_delivered_packets_total", "Inner packets handed to the underlay (egress) or to the host (ingress).", func(f *tunnel.Flow) uint64 { return f.Delivered }),
		flows("weft_delivered_bytes_total", "Inner bytes handed to the underlay (egress) or to the host (ingress).", func(f *tunnel.Flow) uint64 { return f.DeliveredBytes }),
		{"weft_dropped_packets_total", "Inner packets that went no further; received = delivered + dropped.", prometheus.CounterValue, []string{"direction", "reason"}, drops},
		counter("weft_icmp_sent_total", "ICMP errors written back to our own senders.", func(s *Snapshot) uint64 { return s.Tunnel.ICMPSent }),
		counter("weft_icmp_suppressed_total", "ICMP errors that the rate limit withheld.", func(s *Snapshot) uint64 { return s.Tunnel.ICMPSuppressed }),
		counter("weft_fragmented_packets_total", "Inner IPv4 packets that were fragmented for a smaller path.", func(s *Snapshot) uint64 { return s.Tunnel.Fragmented }),
		counter("weft_checksums_completed_total", "Inner checksums that arrived partial, and were filled in or handed on as such.", func(s *Snapshot) uint64 { return s.Tunnel.Completed }),
		{"weft_worker_packets_total", "Inner packets that each worker took: how evenly flows are shared out.", prometheus.CounterValue, []string{"worker", "direction"},
			func(s *Snapshot, emit func(float64, ...string)) {
				for i, w := range s.Workers {
					emit(float64(w.Egress), strconv.Itoa(i), "egress")
					emit(float64(w.Ingress), strconv.Itoa(i), "ingress")
				}
			}},
		workers("weft_worker_busy_seconds_total", "Time in which a worker of weftd's data plane was not waiting for packets; its rate is the share of a processor that it keeps busy at most.",
			func(w *tunnel.WorkerStats) float64 { return w.Busy.Seconds() }),
		workers("weft_worker_reads_total", "System calls of a worker that brought packets; packets divided by reads is how many come at once.",
			func(w *tunnel.WorkerStats) float64 { return float64(w.Reads) }),
		workers("weft_worker_writes_total", "System calls of a worker that handed packets on; packets divided by writes is how many leave at once.",
			func(w *tunnel.WorkerStats) float64 { return float64(w.Writes) }),
		counter("weft_worker_wakeups_total", "How often a worker woke.", func(s *Snapshot) uint64 { return s.Tunnel.Wakeups }),
		counter("weft_worker_batches_total", "How many batches workers moved.", func(s *Snapshot) uint64 { return s.Tunnel.Batches }),
		gauge("weft_ports", "Ports attached to the data plane.", func(s *Snapshot) float64 { return float64(s.Tunnel.Ports) }),
	}
}

func kernelFamilies() []metric {
	offloads := func(name, help string, kind prometheus.ValueType, v func(tunnel.OffloadStats) float64) metric {
		return metric{name, help, kind, []string{"offload"}, func(s *Snapshot, emit func(float64, ...string)) {
			for _, o := range s.Tunnel.Offloads {
				emit(v(o), o.Offload.String())
			}
		}}
	}
	return []metric{
		offloads("weft_offload_on", "1 while the offload is in use; 0 if it is switched off, not supported or lost.", prometheus.GaugeValue,
			func(o tunnel.OffloadStats) float64 { return truth(o.State == tunnel.OffloadOn) }),
		offloads("weft_offload_calls_total", "System calls that moved several packets by the offload.", prometheus.CounterValue,
			func(o tunnel.OffloadStats) float64 { return float64(o.Calls) }),
		offloads("weft_offload_packets_total", "Packets that these moved.", prometheus.CounterValue,
			func(o tunnel.OffloadStats) float64 { return float64(o.Segments) }),
		{"weft_kernel_dropped_packets_total", "Packets that the kernel dropped before or after us.", prometheus.CounterValue, []string{"where"},
			func(s *Snapshot, emit func(float64, ...string)) {
				emit(float64(s.Tunnel.SocketOverflow), "socket")
				emit(float64(s.DeviceDropped), "device")
			}},
		gauge("weft_peers_held_back", "Peers of whose packets only a part is let into a receive queue that they had filled.", func(s *Snapshot) float64 { return float64(s.Tunnel.HeldBack) }),
		gauge("weft_backend_in_place", "1 if device, addresses and routes are as the set wants.", func(s *Snapshot) float64 { return truth(s.Backend.InPlace) }),
		gauge("weft_backend_pending_changes", "Changes to the kernel that are wanted and not made yet.", func(s *Snapshot) float64 { return float64(s.Backend.Pending) }),
		counter("weft_backend_repairs_total", "Changes that undid somebody else's.", func(s *Snapshot) uint64 { return s.Backend.Repaired }),
		gauge("weft_backend_last_reconcile_timestamp_seconds", "When the kernel was last compared with the set; 0 if never.", func(s *Snapshot) float64 { return unix(s.Backend.LastReconcile) }),
		gauge("weft_mtu_bytes", "The largest inner packet; 0 before there is a device.", func(s *Snapshot) float64 { return float64(s.Backend.MTU) }),
		gauge("weft_underlay_lost", "1 while the underlay's link or address is missing.", func(s *Snapshot) float64 { return truth(s.Backend.UnderlayLost != "") }),
	}
}

func peerFamilies() []metric {
	each := func(name, help string, kind prometheus.ValueType, v func(*tunnel.PeerStats) float64) metric {
		return metric{name, help, kind, []string{"peer"}, func(s *Snapshot, emit func(float64, ...string)) {
			for _, p := range s.namedPeers() {
				emit(v(p.PeerStats), p.name)
			}
		}}
	}
	c, g := prometheus.CounterValue, prometheus.GaugeValue
	return []metric{
		gauge("weft_peers", "Peers in the table.", func(s *Snapshot) float64 { return float64(s.Backend.Peers) }),
		gauge("weft_peers_skipped", "Peers whose record the backend cannot use.", func(s *Snapshot) float64 { return float64(len(s.Backend.Skipped)) }),
		peerInfoFamily(),
		gauge("weft_strangers", "Outer sources seen lately that are no peer's.", func(s *Snapshot) float64 { return float64(s.Strangers) }),
		each("weft_peer_transmit_packets_total", "Inner packets sent to the peer.", c, func(p *tunnel.PeerStats) float64 { return float64(p.TxPackets) }),
		each("weft_peer_transmit_bytes_total", "Inner bytes sent to the peer.", c, func(p *tunnel.PeerStats) float64 { return float64(p.TxBytes) }),
		each("weft_peer_receive_packets_total", "Inner packets received from the peer.", c, func(p *tunnel.PeerStats) float64 { return float64(p.RxPackets) }),
		each("weft_peer_receive_bytes_total", "Inner bytes received from the peer.", c, func(p *tunnel.PeerStats) float64 { return float64(p.RxBytes) }),
		each("weft_peer_refused_packets_total", "Packets from the peer that were refused.", c, func(p *tunnel.PeerStats) float64 {
			var n uint64
			for _, d := range p.Drops {
				n += d
			}
			return float64(n)
		}),
		each("weft_peer_last_seen_timestamp_seconds", "When a packet of the peer last arrived; 0 if never.", g, func(p *tunnel.PeerStats) float64 { return unix(p.LastRx) }),
		each("weft_peer_mtu_bytes", "The largest inner packet sent to the peer.", g, func(p *tunnel.PeerStats) float64 { return float64(p.MTU) }),
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// unix returns t as Prometheus wants it, in seconds since 1970; the zero time is 0.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
