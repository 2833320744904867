package ops

import (
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/routing"
)

// page is a Snapshot with what several families need of it.
type page struct {
	*control.Snapshot
	plane     *control.Plane // not nil
	pods      control.PodCounts
	labels    control.Labels
	podNames  []string // of EachPod; "" for one that cannot be told from another
	encrypted []encryptedPeer
}

func newPage(s *control.Snapshot) *page {
	p := &page{Snapshot: s, plane: s.Plane, labels: s.Labels(), podNames: podLabels(s.EachPod)}
	if p.plane == nil {
		p.plane = &control.Plane{}
	}
	if s.Pods != nil {
		p.pods = *s.Pods
	}
	for i := range s.Records {
		if e, ok := encryptedOf(s, &s.Records[i], p.labels.Records[i]); ok {
			p.encrypted = append(p.encrypted, e)
		}
	}
	return p
}

// kernelMoves says that weft moves no packets itself, so that its data plane counts nothing.
func (s *page) kernelMoves() bool { return s.InUse() && routing.CarriesNothing(s.Backend.Path) }

func peerInfoFamily() Metric {
	return Metric{"weft_peer_info", "Always 1; the labels are the peer's record.", prometheus.GaugeValue,
		[]string{"peer", "id", "address", "subnets", "backend"},
		func(s *page, emit func(float64, ...string)) {
			for i := range s.Records {
				r := &s.Records[i]
				address := ""
				if a := r.Address(); a.IsValid() {
					address = a.String()
				}
				if name := s.labels.Records[i]; name != "" {
					emit(1, name, r.Node(), address, r.Subnets.String(), lease.BackendName(r.BackendType))
				}
			}
		}}
}

// encryptedPeer is what the devices of WireGuard know of a peer: its bytes by two devices are one sum, and
// the older handshake counts.
type encryptedPeer struct {
	name             string
	handshake, asked time.Time
	sent, received   uint64
}

func encryptedOf(s *control.Snapshot, r *lease.Record, name string) (e encryptedPeer, ok bool) {
	all := control.EncryptionOf(s.Encrypted, []netip.Prefix{r.V4, r.V6})
	if len(all) == 0 || name == "" {
		return e, false
	}
	e = encryptedPeer{name: name, handshake: all[0].Handshake, asked: all[0].Asked}
	for _, x := range all {
		e.sent, e.received = e.sent+x.TxBytes, e.received+x.RxBytes
		if x.Handshake.Before(e.handshake) {
			e.handshake = x.Handshake
		}
		if x.Asked.Before(e.asked) {
			e.asked = x.Asked
		}
	}
	return e, true
}
