package ops

import (
	"github.com/prometheus/client_golang/prometheus"

	"weft/routing"
)

// deviceFamilies are the traffic of a node whose kernel moves the packets, as its devices count it.
func deviceFamilies() []metric {
	each := func(name, help string, out, in func(*routing.DeviceTraffic) uint64) metric {
		return metric{name, help, prometheus.CounterValue, []string{"device", "scope", "direction"},
			func(s *page, emit func(float64, ...string)) {
				for i := range s.Devices {
					d := &s.Devices[i]
					scope := "host"
					if d.Own {
						scope = "overlay"
					}
					emit(float64(out(d)), d.Name, scope, "egress")
					emit(float64(in(d)), d.Name, scope, "ingress")
				}
			}}
	}
	return []metric{
		each("weft_device_packets_total", "Packets on a device by which the kernel moves the overlay's packets. "+
			"Scope overlay has only those; scope host has the host's other packets too.",
			func(d *routing.DeviceTraffic) uint64 { return d.Counters.TxPackets },
			func(d *routing.DeviceTraffic) uint64 { return d.Counters.RxPackets }),
		each("weft_device_bytes_total", "Bytes on a device by which the kernel moves the overlay's packets, with "+
			"Ethernet headers.",
			func(d *routing.DeviceTraffic) uint64 { return d.Counters.TxBytes },
			func(d *routing.DeviceTraffic) uint64 { return d.Counters.RxBytes }),
		each("weft_device_dropped_packets_total",
			"Packets dropped at a device by which the kernel moves the overlay's packets.",
			func(d *routing.DeviceTraffic) uint64 { return d.Counters.TxDropped },
			func(d *routing.DeviceTraffic) uint64 { return d.Counters.RxDropped }),
		each("weft_device_errors_total", "Packets that a device by which the kernel moves the overlay's packets "+
			"could not send or receive.",
			func(d *routing.DeviceTraffic) uint64 { return d.Counters.TxErrors },
			func(d *routing.DeviceTraffic) uint64 { return d.Counters.RxErrors }),
	}
}
