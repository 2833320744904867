package routing

import (
	"encoding/json"
	"fmt"

	"weft/lease"
	"weft/routing/hostrules"
	"weft/routing/underlay"
)

// toyType is a type of backend as CONTRIBUTING.md has one added: this file, and one line in a list. It has a
// little of everything: keys of its own, a port with a guard, BackendData, an MTU, and routes to the peers
// that publish its colour.
func toyType() Type {
	return Type{
		Name: "toy", Settings: func(lease.NetworkConfig, func(string) bool) settings { return new(toy) },
		Help: map[string]string{"ListenPort": "a port", "Colour": "peers of another colour are not reached"},
	}
}

// toyOverhead is what a packet grows by, in bytes.
const toyOverhead = 80

// toy routes to peers of its colour.
type toy struct {
	ListenPort uint16 `default:"51820" range:"1..65535"`
	Colour     string `words:"red green"`
	plain
}

// Facts implements settings.
func (t *toy) Facts() Facts {
	return Facts{Carrier: CarrierKernel, Port: t.ListenPort,
		Guard: hostrules.Guard{Port: t.ListenPort, Peers: true}, DataV6: true, record: "toy", path: PathKernel}
}

func (t *toy) publish() (data, v6data json.RawMessage) {
	return fmt.Appendf(nil, `{"Colour":%q}`, t.Colour), nil
}

func (t *toy) sizes(u underlay.Link) (mtus, error) {
	m, err := t.plain.sizes(u)
	m.inner -= toyOverhead
	return m, err
}

func (t *toy) want(s situation) desired {
	d := desired{device: s.under.Name, ways: s.ways("toy")}
	for w := range d.used() {
		var data struct{ Colour string }
		if err := json.Unmarshal(w.data, &data); err != nil || data.Colour != t.Colour {
			w.skip("its colour is %s, this node's is %s", shorten(w.data), t.Colour)
			continue
		}
		w.How = HowRoute
		d.Routes = append(d.Routes, w.route(s))
	}
	return d
}
