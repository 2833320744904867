package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// ErrValue says that the value of a record does not decode.
var ErrValue = errors.New("not the value of a record")

// Limits of one record. A node writes a few hundred bytes.
const (
	maxValue = 64 << 10 // bytes
	maxAddrs = 64
	maxRecv  = 64
)

// attrsJSON is flannel's value, in flannel's order, with our object last.
type attrsJSON struct {
	PublicIP      netip.Addr
	PublicIPv6    *netip.Addr
	BackendType   string          `json:",omitempty"`
	BackendData   json.RawMessage `json:",omitempty"`
	BackendV6Data json.RawMessage `json:",omitempty"`
	Weft          *Weft           `json:",omitempty"`
}

// EncodeAttrs returns the value of a record. The error is about BackendData or
// BackendV6Data that are not JSON.
func EncodeAttrs(a Attrs) ([]byte, error) {
	b, err := json.Marshal(a.json())
	if err != nil {
		return nil, fmt.Errorf("encode record of %s: %w", a.PublicIP, err)
	}
	return b, nil
}

func (a Attrs) json() attrsJSON {
	out := attrsJSON{
		PublicIP: a.PublicIP, BackendType: a.BackendType,
		BackendData: a.BackendData, BackendV6Data: a.BackendV6Data, Weft: a.Weft,
	}
	if !a.PublicIP.IsValid() {
		out.PublicIP = netip.IPv4Unspecified()
	}
	if a.PublicIPv6.IsValid() {
		out.PublicIPv6 = &a.PublicIPv6
	}
	return out
}

// DecodeAttrs reads the value of a record. Unknown keys and missing keys are fine,
// as with flannel; an address that is no address is not. The error wraps ErrValue.
func DecodeAttrs(b []byte) (Attrs, error) {
	if len(b) > maxValue {
		return Attrs{}, fmt.Errorf("%w: %d bytes, more than %d", ErrValue, len(b), maxValue)
	}
	var in struct {
		attrsJSON
		PublicIP   *addr4
		PublicIPv6 *addr6
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return Attrs{}, fmt.Errorf("%w: %w", ErrValue, err)
	}
	a := Attrs{
		BackendType: in.BackendType, Weft: in.Weft,
		BackendData: notNull(in.BackendData), BackendV6Data: notNull(in.BackendV6Data),
	}
	if in.PublicIP != nil {
		a.PublicIP = netip.Addr(*in.PublicIP)
	}
	if in.PublicIPv6 != nil {
		a.PublicIPv6 = netip.Addr(*in.PublicIPv6)
	}
	return a, a.Weft.check()
}

func notNull(raw json.RawMessage) json.RawMessage {
	if isNull(raw) {
		return nil
	}
	return raw
}

// DecodeWeft reads our object where it stands alone. The error wraps ErrValue.
func DecodeWeft(b []byte) (*Weft, error) {
	if len(b) > maxValue {
		return nil, fmt.Errorf("%w: %d bytes, more than %d", ErrValue, len(b), maxValue)
	}
	var w *Weft
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrValue, err)
	}
	return w, w.check()
}

// UnmarshalJSON reads our object. Of Name and Probe, on which nothing depends, a value of another type than
// ours counts as none, as one that is out of range does: it must not cost the node its peer.
func (w *Weft) UnmarshalJSON(b []byte) error {
	type plain Weft // without this method
	in := struct {
		*plain
		Name, Probe json.RawMessage
	}{plain: (*plain)(w)}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	w.Name, w.Probe = "", 0
	if in.Name != nil && json.Unmarshal(in.Name, &w.Name) != nil {
		w.Name = ""
	}
	if in.Probe != nil && json.Unmarshal(in.Probe, &w.Probe) != nil {
		w.Probe = 0
	}
	return nil
}

// check bounds what a stranger can make us keep. A name or a port that is none is left out, since nothing
// depends on it.
func (w *Weft) check() error {
	if w == nil {
		return nil
	}
	if !ValidName(w.Name) {
		w.Name = ""
	}
	if w.Probe < 0 || w.Probe > 65535 {
		w.Probe = 0
	}
	switch {
	case w.Node == "" || !ValidNode(w.Node):
		return fmt.Errorf("%w: Weft.Node %q is no node id", ErrValue, quote([]byte(w.Node)))
	case w.State != "" && !ValidState(w.State):
		return fmt.Errorf("%w: Weft.State %q names no state directory", ErrValue, quote([]byte(w.State)))
	case len(w.Addrs) > maxAddrs || len(w.Recv) > maxRecv:
		return fmt.Errorf("%w: %d Weft.Addrs and %d Weft.Recv", ErrValue, len(w.Addrs), len(w.Recv))
	case w.MTU < 0 || w.MTU > 65535:
		return fmt.Errorf("%w: Weft.MTU %d", ErrValue, w.MTU)
	case slices.ContainsFunc(w.Addrs, func(a netip.Addr) bool {
		return !a.IsValid() || a.Is4In6() || a.Zone() != ""
	}):
		return fmt.Errorf("%w: Weft.Addrs %v", ErrValue, w.Addrs)
	}
	return nil
}

// addr4 decodes PublicIP: 0.0.0.0 is the zero Addr.
type addr4 netip.Addr

func (a *addr4) UnmarshalText(b []byte) error {
	p, err := netip.ParseAddr(string(b))
	if err == nil && !p.Is4() {
		err = fmt.Errorf("PublicIP %s is not IPv4", p)
	}
	if err == nil && !p.IsUnspecified() {
		*a = addr4(p)
	}
	return err
}

// addr6 decodes PublicIPv6: :: is the zero Addr.
type addr6 netip.Addr

func (a *addr6) UnmarshalText(b []byte) error {
	p, err := netip.ParseAddr(string(b))
	if err == nil && (!family6.is(p) || p.Zone() != "") {
		err = fmt.Errorf("PublicIPv6 %s is not IPv6", p)
	}
	if err == nil && !p.IsUnspecified() {
		*a = addr6(p)
	}
	return err
}

// MarshalJSON writes the value of a record, as EncodeAttrs does.
func (a Attrs) MarshalJSON() ([]byte, error) { return EncodeAttrs(a) }

// UnmarshalJSON reads the value of a record, as DecodeAttrs does.
func (a *Attrs) UnmarshalJSON(b []byte) (err error) {
	*a, err = DecodeAttrs(b)
	return err
}

// Equal reports whether both would be written as the same bytes.
func (a Attrs) Equal(b Attrs) bool {
	if a.alike(b) { // encoding each of thousands of records, that are nearly all alike, is much garbage
		return true
	}
	x, errX := EncodeAttrs(a)
	y, errY := EncodeAttrs(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// alike reports whether both are the same to the byte, and the data of their backends is JSON, if there is
// any.
func (a Attrs) alike(b Attrs) bool {
	same := func(x, y json.RawMessage) bool {
		return x == nil && y == nil || x != nil && y != nil && bytes.Equal(x, y) && json.Valid(x)
	}
	if a.PublicIP != b.PublicIP || a.PublicIPv6 != b.PublicIPv6 || a.BackendType != b.BackendType ||
		!same(a.BackendData, b.BackendData) || !same(a.BackendV6Data, b.BackendV6Data) {
		return false
	}
	v, w := a.Weft, b.Weft
	if v == nil || w == nil {
		return v == w
	}
	return v.Node == w.Node && v.Name == w.Name && v.State == w.State && v.MTU == w.MTU && v.Probe == w.Probe &&
		slices.Equal(v.Recv, w.Recv) && slices.Equal(v.Addrs, w.Addrs)
}

// Node returns the identity of the owner, "" on a record without our object.
func (a Attrs) Node() string {
	if a.Weft == nil {
		return ""
	}
	return a.Weft.Node
}

// State names the state directory that the record was written from, "" if it does not say.
func (a Attrs) State() string {
	if a.Weft == nil {
		return ""
	}
	return a.Weft.State
}

// recordJSON is a record in the cache and towards an operator. It is written with attrsJSON, which has no
// method that would encode a layer by itself, and read with Attrs.
type recordJSON[A Attrs | attrsJSON] struct {
	Key         string
	Attrs       A
	Expires     time.Time `json:",omitzero"`
	Reservation bool      `json:",omitempty"`
	Revision    int64
	Created     int64     `json:",omitempty"`
	Kube        *KubeNode `json:",omitempty"`
}

// MarshalJSON writes the record with its key; without it the method of Attrs
// would be promoted and lose everything else.
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(recordJSON[attrsJSON]{r.Key(), r.json(), r.Expires, r.Reservation, r.Revision, r.Created,
		r.Kube})
}

// UnmarshalJSON reads what MarshalJSON wrote. A record without a key is one
// without subnets.
func (r *Record) UnmarshalJSON(b []byte) error {
	var in recordJSON[Attrs]
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*r = Record{Attrs: in.Attrs, Expires: in.Expires, Reservation: in.Reservation, Revision: in.Revision,
		Created: in.Created, Kube: in.Kube}
	if in.Key == "" {
		return nil
	}
	var err error
	r.Subnets, err = ParseKey(in.Key)
	return err
}
