package ops

import (
	"github.com/prometheus/client_golang/prometheus"

	"weft/routing"
)

// deviceFamilies are the traffic of a node whose kernel moves the packets, as its devices count it.
func deviceFamilies() []metric {
	each := func(name, help string, out, in func(*routing.DeviceTraffic) uint64) metric {
		return metric{name, help, prometheus.CounterValue, []string{"device", "scope", "direction"}, func(s *page, emit func(float64, ...string)) {
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
		each("weft_device_packets_total", "Packets that the kernel counted on a device, where it moves the overlay's packets (vxlan, host-gw). With scope overlay all of them are between this node and others; with scope host the device is the host's and has its other packets too.",
			func(d *routing.DeviceTraffic) uint64 { return d.Counters.TxPackets }, func(d *routing.DeviceTraffic) uint64 { return d.Counters.RxPackets }),
		each("weft_device_bytes_total", "Bytes that the kernel counted on a device, where it moves the overlay's packets, with each packet's Ethernet header.",
			func(d *routing.DeviceTraffic) uint64 { return d.Counters.TxBytes }, func(d *routing.DeviceTraffic) uint64 { return d.Counters.RxBytes }),
		each("weft_device_dropped_packets_total", "Packets that the kernel dropped at a device, where it moves the overlay's packets: its queue was full, or nobody was there to take them.",
			func(d *routing.DeviceTraffic) uint64 { return d.Counters.TxDropped }, func(d *routing.DeviceTraffic) uint64 { return d.Counters.RxDropped }),
		each("weft_device_errors_total", "Packets that a device could not send or receive, where the kernel moves the overlay's packets; with vxlan, sending fails where there is no way to the peer's host.",
			func(d *routing.DeviceTraffic) uint64 { return d.Counters.TxErrors }, func(d *routing.DeviceTraffic) uint64 { return d.Counters.RxErrors }),
	}
}
