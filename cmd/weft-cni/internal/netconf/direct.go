package netconf

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// AttachDirect is the value of the key attach for pods whose interface is a port of weftd's data plane.
// Without the key, another plugin makes the interface.
const AttachDirect = "direct"

// Direct is what the state of a directly attached pod says beside its addresses. Its delegate is the ipam
// plugin itself.
type Direct struct {
	// MTU is that of the pod's interface, in bytes.
	MTU int `json:"mtu"`
	// ControlSocket is that of the weftd that has the pod.
	ControlSocket string `json:"controlSocket"`
	// DefaultRoute says that the pod's way to everywhere leads through the interface.
	DefaultRoute bool `json:"isDefaultGateway"`
}

// Direct returns what d says of a directly attached pod; ok is false if d is the configuration of a plugin
// that makes the interface.
func (d Delegate) Direct() (out Direct, ok bool) {
	var attach string
	if json.Unmarshal(d.keys["attach"], &attach) != nil || attach != AttachDirect {
		return Direct{}, false
	}
	return out, json.Unmarshal(d.Text(), &out) == nil
}

// checkDirect joins what a directly attached pod cannot have.
func (c Config) checkDirect() (faults []error) {
	switch c.Attach {
	case "":
		return nil
	case AttachDirect:
	default:
		return []error{fmt.Errorf("attach is %q: it takes %q, or is left out", c.Attach, AttachDirect)}
	}
	for _, key := range slices.Sorted(maps.Keys(c.Delegate)) {
		text := string(c.Delegate[key])
		switch {
		case key == "type" && text != `"`+DefaultType+`"`:
			faults = append(faults, fmt.Errorf("delegate.type is %s, and with attach %q no plugin makes the "+
				"interface: leave one of them out", text, AttachDirect))
		case key == "ipMasq" && text == "true":
			faults = append(faults, fmt.Errorf("delegate.ipMasq: with attach %q the node masquerades, weftd --ip-masq",
				AttachDirect))
		case key == "vlan" || key == "vlanTrunk" || key == "macspoofchk" && text == "true":
			faults = append(faults, fmt.Errorf("delegate.%s: a pod with attach %q is on no bridge", key, AttachDirect))
		}
	}
	var d Direct
	for key, into := range map[string]any{"mtu": &d.MTU, "isDefaultGateway": &d.DefaultRoute} {
		if raw, ok := c.Delegate[key]; ok && json.Unmarshal(raw, into) != nil {
			faults = append(faults, fmt.Errorf("delegate.%s is %s", key, raw))
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return faults
}

// direct makes of d, without env, the configuration of a directly attached pod: it calls the ipam plugin, by
// the same means by which a bridge would be called. flannel's plugin, were it to detach the pod, would free
// the address and do nothing else, which is right: the interface goes with the pod.
func (c Config) direct(d Delegate) Delegate {
	out := Direct{ControlSocket: c.ControlSocket}
	for key, into := range map[string]any{"mtu": &out.MTU, "isDefaultGateway": &out.DefaultRoute} {
		if raw, ok := c.Delegate[key]; ok {
			_ = json.Unmarshal(raw, into) // checked
		}
	}
	keep := map[string]json.RawMessage{}
	for _, key := range []string{"name", "cniVersion", "runtimeConfig", "dns", "args", "prevResult"} {
		if raw, ok := d.keys[key]; ok {
			keep[key] = raw
		}
	}
	d.keys, d.Type = keep, d.IPAMType
	d.set("type", d.Type)
	d.set("attach", AttachDirect)
	d.set("controlSocket", out.ControlSocket)
	d.set("isDefaultGateway", out.DefaultRoute)
	if out.MTU != 0 {
		d.set("mtu", out.MTU)
	}
	return d
}

// These are the bounds of a stated limit, in bytes. Below the lower one, cutting superpackets
// costs more than any path of the overlay gains. Above the upper one they are BIG TCP, which
// no path of the data plane carries in one piece.
const (
	MinGSOMaxSize = 16 << 10
	MaxGSOMaxSize = 64 << 10
)

// GSOLimit is the value of the key gsoMaxSize: absent, "auto", or a number of bytes. The
// zero value stands for absent, which leaves the pod's link as the kernel makes it.
type GSOLimit struct {
	// Auto asks for the limit that suits the path by which the node's weftd carries packets.
	Auto bool
	// Bytes is a stated limit, or 0.
	Bytes int
}

// UnmarshalJSON reads the key's value.
func (l *GSOLimit) UnmarshalJSON(b []byte) error {
	*l = GSOLimit{}
	switch text := string(b); text {
	case "null":
		return nil
	case `"auto"`:
		l.Auto = true
		return nil
	}
	if err := json.Unmarshal(b, &l.Bytes); err != nil || l.Bytes < MinGSOMaxSize || l.Bytes > MaxGSOMaxSize {
		return fmt.Errorf(`gsoMaxSize is %s: it takes "auto" or a number of bytes from %d to %d`, b, MinGSOMaxSize,
			MaxGSOMaxSize)
	}
	return nil
}
