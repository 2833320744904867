package routing

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"weft/lease"
	"weft/routing/hostrules"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
)

// toyType is a type of backend as CONTRIBUTING.md has one added: this file, and one line in a list. It has a little of
// everything: keys of its own, a port with a guard, BackendData, an MTU, and routes to the peers that publish its colour.
func toyType() Type {
	return Type{Name: "toy", Settings: func(c lease.NetworkConfig) Settings { return &toySettings{ipv6: c.EnableIPv6} }}
}

// toyOverhead is what a packet grows by, in bytes.
const toyOverhead = 80

type toySettings struct {
	plainOptions
	Port   uint16
	Colour string
	ipv6   bool
}

// Keys implements Settings.
func (s *toySettings) Keys() []Key {
	return append(plainKeys(&s.plainOptions, s.ipv6),
		numberKey("ListenPort", &s.Port, 51820, 1, 65535), wordKey("Colour", &s.Colour, "red", "green"))
}

// Facts implements Settings.
func (s *toySettings) Facts() Facts {
	return Facts{Carrier: CarrierKernel, Port: s.Port, Guard: hostrules.Guard{Port: s.Port, Peers: true}, DataV6: true}
}

// MTU implements Settings.
func (s *toySettings) MTU(u underlay.Link) (int, error) { return innerMTU(toy{s}, u) }

// Open implements Settings.
func (s *toySettings) Open(_ context.Context, c BackendConfig) (Backend, error) {
	return openKernel(c, toy{s}, nil)
}

// toy routes to peers of its colour.
type toy struct{ s *toySettings }

func (toy) trait() trait { return trait{name: "toy", record: "toy", path: PathKernel} }

func (t toy) publish() (data, v6data json.RawMessage) {
	return fmt.Appendf(nil, `{"Colour":%q}`, t.s.Colour), nil
}

func (t toy) sizes(u underlay.Link) (mtus, error) {
	m, err := plainSizes(u.MTU, t.s.plainOptions.MTU, t.s.ipv6)
	m.inner -= toyOverhead
	return m, err
}

func (t toy) want(s situation) desired {
	d := desired{device: s.under.Name}
	for _, r := range s.set.Peers {
		for _, f := range families(r, s.set, s.under) {
			report := f.reached(r)
			var data struct{ Colour string }
			err := json.Unmarshal(f.data, &data)
			switch {
			case !strings.EqualFold(r.BackendType, "toy"):
				report = report.skip("its backend is %s, this network's is toy", backendName(r.BackendType))
			case err != nil || data.Colour != t.s.Colour:
				report = report.skip("its colour is %s, this node's is %s", shorten(f.data), t.s.Colour)
			default:
				report.How = HowRoute
				d.Routes = append(d.Routes, kernel.PeerRoute(f.subnet, f.public, s.under.Name, routeMTU(r, f.six, s.mtu)))
			}
			d.reached = append(d.reached, report)
		}
	}
	return d
}
