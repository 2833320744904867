package ops

import (
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weft/cmd/weftd/internal/verdict"
	"weft/lease"
	"weft/tunnel"
	"weft/tunnel/port"
)

// Metric is one family: what it is called, and how it is read from a Snapshot.
type Metric struct {
	Name, Help string
	Kind       prometheus.ValueType // CounterValue or GaugeValue
	Labels     []string
	// read calls emit once for each set of label values.
	read func(s *page, emit func(v float64, labels ...string))
}

// Metrics lists every metric of ours, by what it is about.
func Metrics() []Metric {
	return slices.Concat(nodeFamilies(), carried(packetFamilies()), deviceFamilies(), carried(queueFamilies()),
		kernelFamilies(), hookFamilies(), rulesFamilies(), peerFamilies(), probeFamilies(), encryptedFamilies(),
		podFamilies(), podInterfaceFamilies())
}

// carried makes families that are absent where the kernel moves the packets: zeros would say that nothing
// passes.
func carried(all []Metric) []Metric {
	for i := range all {
		read := all[i].read
		all[i].read = func(s *page, emit func(float64, ...string)) {
			if !s.kernelMoves() {
				read(s, emit)
			}
		}
	}
	return all
}

// gauge and counter make metrics without labels.
func gauge(name, help string, v func(*page) float64) Metric {
	return Metric{Name: name, Help: help, Kind: prometheus.GaugeValue,
		read: func(s *page, emit func(float64, ...string)) { emit(v(s)) }}
}

func counter(name, help string, v func(*page) uint64) Metric {
	return Metric{Name: name, Help: help, Kind: prometheus.CounterValue,
		read: func(s *page, emit func(float64, ...string)) { emit(float64(v(s))) }}
}

func nodeFamilies() []Metric {
	return []Metric{
		{"weft_build_info", "Always 1; the labels say what runs.", prometheus.GaugeValue,
			[]string{"version", "goversion", "node"},
			func(s *page, emit func(float64, ...string)) { emit(1, s.Version, runtime.Version(), s.NodeID) }},
		gauge("weft_ready", "1 if /readyz answers 200.", func(s *page) float64 {
			return truth(len(verdict.Reasons(s.Snapshot)) == 0)
		}),
		gauge("weft_lease_held", "1 while the store confirms this node's lease.", func(s *page) float64 {
			return truth(s.InUse() && s.Lease.State == lease.Held)
		}),
		gauge("weft_lease_expiry_timestamp_seconds", "Unix time at which this node's lease ends; 0 for no end.",
			func(s *page) float64 { return unix(s.Lease.Own.Expires) }),
		gauge("weft_store_up", "1 while the store (etcd or the Kubernetes API) answers.", func(s *page) float64 {
			return truth(s.Lease.StoreErr == nil && !s.Lease.StoreSeen.IsZero())
		}),
		gauge("weft_store_last_seen_timestamp_seconds",
			"Unix time of the store's last answer; 0 for none since the start.", func(s *page) float64 {
				return unix(s.Lease.StoreSeen)
			}),
		gauge("weft_store_revision", "The store's revision of the records in use.", func(s *page) float64 {
			return float64(s.Lease.Revision)
		}),
		gauge("weft_config_changed", "1 while the store's network configuration is not the one in use; weft "+
			"status shows the difference.", func(s *page) float64 { return truth(s.Config.Differs) }),
		gauge("weft_config_fault", "1 while the store's network configuration cannot be used.",
			func(s *page) float64 { return truth(len(s.Config.Faults) > 0) }),
		gauge("weft_config_last_good", "1 while the node runs on its last good network configuration.",
			func(s *page) float64 { return truth(s.Config.LastGood) }),
		{"weft_no_usable_peer", "1 for each reason why no record of another node can be used.",
			prometheus.GaugeValue, []string{"reason"},
			func(s *page, emit func(float64, ...string)) {
				_, why := verdict.NoPeer(s.Snapshot)
				for _, reason := range verdict.AllUnusable() {
					emit(truth(slices.Contains(why, reason)), string(reason))
				}
			}},
		gauge("weft_removals_disbelieved", "1 while this node keeps peers whose records are gone, since the "+
			"store seems emptied or replaced.", func(s *page) float64 { return truth(s.Lease.Alarm != "") }),
		{"weft_records_rejected", "Records that are not used, by reason; weft lease list names them.",
			prometheus.GaugeValue, []string{"reason"},
			func(s *page, emit func(float64, ...string)) {
				rejected := s.Lease.RejectedCount()
				for _, reason := range lease.RejectReasons() {
					emit(float64(rejected[reason]), string(reason))
				}
			}},
		gauge("weft_cache_saved_timestamp_seconds",
			"Unix time at which the last state was written to disk; 0 for none.", func(s *page) float64 {
				return unix(s.Cache.SavedAt)
			}),
	}
}

func packetFamilies() []Metric {
	flows := func(name, help string, v func(*tunnel.Flow) uint64) Metric {
		return Metric{name, help, prometheus.CounterValue, []string{"direction"},
			func(s *page, emit func(float64, ...string)) {
				emit(float64(v(&s.plane.Stats.Egress)), "egress")
				emit(float64(v(&s.plane.Stats.Ingress)), "ingress")
			}}
	}
	workers := func(name, help string, v func(*tunnel.WorkerStats) float64) Metric {
		return Metric{name, help, prometheus.CounterValue, []string{"worker"},
			func(s *page, emit func(float64, ...string)) {
				for i := range s.plane.Workers {
					emit(v(&s.plane.Workers[i]), strconv.Itoa(i))
				}
			}}
	}
	drops := func(s *page, emit func(float64, ...string)) {
		for r := range port.NumDropReasons {
			emit(float64(s.plane.Stats.Egress.Drops[r]), "egress", r.String())
			emit(float64(s.plane.Stats.Ingress.Drops[r]), "ingress", r.String())
		}
	}
	return []Metric{
		flows("weft_received_packets_total", "Inner packets taken from this host (egress) or from other nodes "+
			"(ingress).", func(f *tunnel.Flow) uint64 { return f.Received }),
		flows("weft_received_bytes_total", "Bytes of inner packets taken from this host (egress) or from other "+
			"nodes (ingress).", func(f *tunnel.Flow) uint64 { return f.ReceivedBytes }),
		flows("weft_delivered_packets_total", "Inner packets handed to other nodes (egress) or to this host "+
			"(ingress).", func(f *tunnel.Flow) uint64 { return f.Delivered }),
		flows("weft_delivered_bytes_total", "Bytes of inner packets handed to other nodes (egress) or to this "+
			"host (ingress).", func(f *tunnel.Flow) uint64 { return f.DeliveredBytes }),
		{"weft_dropped_packets_total", "Inner packets dropped, by reason; received = delivered + dropped.",
			prometheus.CounterValue, []string{"direction", "reason"}, drops},
		counter("weft_icmp_sent_total", "ICMP errors sent to senders on this host, such as packet too big.",
			func(s *page) uint64 { return s.plane.Stats.ICMPSent }),
		counter("weft_icmp_suppressed_total", "ICMP errors to senders on this host that the rate limit withheld.",
			func(s *page) uint64 { return s.plane.Stats.ICMPSuppressed }),
		counter("weft_fragmented_packets_total",
			"Inner IPv4 packets fragmented, since the path carries only smaller ones.", func(s *page) uint64 {
				return s.plane.Stats.Fragmented
			}),
		counter("weft_checksums_completed_total", "Inner packets that came with a partial checksum.",
			func(s *page) uint64 { return s.plane.Stats.Completed }),
		{"weft_worker_packets_total", "Inner packets that each worker took.", prometheus.CounterValue,
			[]string{"worker", "direction"},
			func(s *page, emit func(float64, ...string)) {
				for i, w := range s.plane.Workers {
					emit(float64(w.Egress), strconv.Itoa(i), "egress")
					emit(float64(w.Ingress), strconv.Itoa(i), "ingress")
				}
			}},
		workers("weft_worker_busy_seconds_total",
			"Time in which a worker did not wait for packets; its rate is at most the share of a processor that it "+
				"uses.",
			func(w *tunnel.WorkerStats) float64 { return w.Busy.Seconds() }),
		workers("weft_worker_reads_total", "System calls of a worker that brought packets.",
			func(w *tunnel.WorkerStats) float64 { return float64(w.Reads) }),
		workers("weft_worker_writes_total", "System calls of a worker that handed packets on.",
			func(w *tunnel.WorkerStats) float64 { return float64(w.Writes) }),
		counter("weft_worker_wakeups_total", "How often packets woke a worker.", func(s *page) uint64 {
			return s.plane.Stats.Wakeups
		}),
		counter("weft_worker_batches_total", "Batches of packets that workers moved.", func(s *page) uint64 {
			return s.plane.Stats.Batches
		}),
		gauge("weft_ports", "Devices and sockets that the data plane moves packets between.",
			func(s *page) float64 { return float64(s.plane.Stats.Ports) }),
	}
}

func queueFamilies() []Metric {
	offloads := func(name, help string, kind prometheus.ValueType, v func(port.OffloadStats) float64) Metric {
		return Metric{name, help, kind, []string{"offload"}, func(s *page, emit func(float64, ...string)) {
			for _, o := range s.plane.Stats.Offloads {
				emit(v(o), o.Offload.String())
			}
		}}
	}
	return []Metric{
		offloads("weft_offload_on", "1 while this offload moves several packets in one call; 0 if it is off, not "+
			"supported or lost.", prometheus.GaugeValue,
			func(o port.OffloadStats) float64 { return truth(o.State == port.OffloadOn) }),
		offloads("weft_offload_calls_total", "System calls that moved several packets by this offload.",
			prometheus.CounterValue,
			func(o port.OffloadStats) float64 { return float64(o.Calls) }),
		offloads("weft_offload_packets_total", "Packets in the calls of this offload.", prometheus.CounterValue,
			func(o port.OffloadStats) float64 { return float64(o.Segments) }),
		{"weft_kernel_dropped_packets_total", "Packets that the kernel dropped since weftd was too slow, at its " +
			"socket or at the overlay's device.", prometheus.CounterValue, []string{"where"},
			func(s *page, emit func(float64, ...string)) {
				emit(float64(s.plane.Stats.SocketOverflow), "socket")
				emit(float64(s.plane.Dropped), "device")
			}},
		gauge("weft_peers_held_back", "Peers that filled the receive queue, so that only a part of their packets "+
			"is let in.", func(s *page) float64 { return float64(s.plane.Stats.HeldBack) }),
	}
}

func kernelFamilies() []Metric {
	return []Metric{
		gauge("weft_backend_in_place", "1 if the overlay's devices, addresses and routes are in place.",
			func(s *page) float64 { return truth(s.Backend.InPlace) }),
		gauge("weft_backend_pending_changes", "Changes to devices, addresses and routes that are due.",
			func(s *page) float64 { return float64(s.Backend.Pending) }),
		counter("weft_backend_repairs_total", "Changes of others to the overlay's devices, addresses and routes "+
			"that weftd undid.", func(s *page) uint64 { return s.Backend.Repaired }),
		gauge("weft_backend_last_reconcile_timestamp_seconds",
			"Unix time of the last comparison of devices and routes; 0 before the first.", func(s *page) float64 {
				return unix(s.Backend.LastReconcile)
			}),
		gauge("weft_mtu_bytes", "The largest packet that pods can send through the overlay, in bytes; 0 without "+
			"a device.", func(s *page) float64 { return float64(s.Backend.MTU) }),
		gauge("weft_underlay_lost", "1 while the underlay's interface or its address is missing.",
			func(s *page) float64 { return truth(s.Backend.UnderlayLost != "") }),
	}
}

// hookFamilies are those of a backend whose routes a controller of the operator's programs.
func hookFamilies() []Metric {
	return []Metric{
		{"weft_route_hook_routes", "Routes that this node last gave route-hook's controller, by state.",
			prometheus.GaugeValue, []string{"state"},
			func(s *page, emit func(float64, ...string)) {
				if h := s.Backend.Hook; h.Controller != "" {
					emit(float64(h.Accepted), "accepted")
					emit(float64(h.Pending), "pending")
					emit(float64(h.Refused), "refused")
				}
			}},
		{"weft_route_hook_last_taken_timestamp_seconds",
			"Unix time at which route-hook's controller last took this node's routes; 0 for never since the start.",
			prometheus.GaugeValue, nil,
			func(s *page, emit func(float64, ...string)) {
				if h := s.Backend.Hook; h.Controller != "" {
					emit(unix(h.Taken))
				}
			}},
		{"weft_route_hook_failures_total", "How often route-hook's controller did not take this node's routes; " +
			"weft status says why.", prometheus.CounterValue, nil,
			func(s *page, emit func(float64, ...string)) {
				if h := s.Backend.Hook; h.Controller != "" {
					emit(float64(h.Failures))
				}
			}},
	}
}

func peerFamilies() []Metric {
	each := func(name, help string, kind prometheus.ValueType, v func(*tunnel.PeerStats) float64) Metric {
		return Metric{name, help, kind, []string{"peer"}, func(s *page, emit func(float64, ...string)) {
			for i, name := range s.labels.Traffic {
				if name != "" {
					emit(v(&s.plane.Peers[i]), name)
				}
			}
		}}
	}
	c, g := prometheus.CounterValue, prometheus.GaugeValue
	return []Metric{
		gauge("weft_peers", "Peers that this node exchanges packets with.", func(s *page) float64 {
			return float64(s.Backend.Peers)
		}),
		gauge("weft_peers_skipped", "Nodes whose record this node cannot use; weft status says why.",
			func(s *page) float64 { return float64(len(s.Backend.Skipped)) }),
		peerInfoFamily(),
		strangersFamily(),
		each("weft_peer_transmit_packets_total", "Inner packets sent to the peer.", c,
			func(p *tunnel.PeerStats) float64 { return float64(p.TxPackets) }),
		each("weft_peer_transmit_bytes_total", "Bytes of inner packets sent to the peer.", c,
			func(p *tunnel.PeerStats) float64 { return float64(p.TxBytes) }),
		each("weft_peer_receive_packets_total", "Inner packets received from the peer.", c,
			func(p *tunnel.PeerStats) float64 { return float64(p.RxPackets) }),
		each("weft_peer_receive_bytes_total", "Bytes of inner packets received from the peer.", c,
			func(p *tunnel.PeerStats) float64 { return float64(p.RxBytes) }),
		each("weft_peer_icmp_unreachable_total", "ICMP messages that the peer is unreachable.", c,
			func(p *tunnel.PeerStats) float64 { return float64(p.Unreachable.Count) }),
		each("weft_peer_refused_packets_total", "Packets from the peer that were dropped; weft peers says why.", c,
			func(p *tunnel.PeerStats) float64 {
				var n uint64
				for _, d := range p.Drops {
					n += d
				}
				return float64(n)
			}),
		each("weft_peer_last_seen_timestamp_seconds",
			"Unix time of the peer's last packet; 0 for none since the start.", g, func(p *tunnel.PeerStats) float64 {
				return unix(p.LastRx)
			}),
		each("weft_peer_mtu_bytes", "The largest inner packet that is sent to the peer, in bytes.", g,
			func(p *tunnel.PeerStats) float64 { return float64(p.MTU) }),
	}
}

func strangersFamily() Metric {
	return carried([]Metric{gauge("weft_strangers", "Addresses of no node that lately sent to the overlay's "+
		"port; weft peers names them.", func(s *page) float64 { return float64(len(s.plane.Strangers)) })})[0]
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
