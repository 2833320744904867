package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"weft/lease"
)

// DefaultPrefix is flannel's --kube-annotation-prefix.
const DefaultPrefix = "flannel.alpha.coreos.com"

// ErrAnnotation says that a Node's annotations do not parse.
var ErrAnnotation = errors.New("not the annotations of a node")

// Limits of one Node. Kubernetes allows 256 KiB for all annotations together.
const (
	maxValue = 16 << 10 // bytes of one annotation
	maxType  = 64       // bytes of backend-type
)

// keys are the names of the annotations: flannel's, and one of ours, which flannel ignores.
type keys struct {
	managed, backendType      string
	data, v6data              string
	public, publicV6          string
	overwrite, overwriteV6    string // an administrator's: what to publish instead
	nodePublicIP, nodePublic6 string // an administrator's: instead of --public-ip and --public-ipv6
	weft                      string // lease.Weft
}

// newKeys applies flannel's rules for a prefix: at most one slash, which ends it if there is
// none, and else a final dash. It ends in two labels or more, a slash, and a name that may be
// empty. (flannel lets anything stand before that, which no API server takes.)
func newKeys(prefix string) (keys, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	given := prefix
	switch strings.Count(prefix, "/") {
	case 0:
		prefix += "/"
	case 1:
		if !strings.HasSuffix(prefix, "/") && !strings.HasSuffix(prefix, "-") {
			prefix += "-"
		}
	default:
		return keys{}, fmt.Errorf("%q: a prefix has at most one slash", clip(given))
	}
	domain, name, _ := strings.Cut(prefix, "/")
	ok, err := regexp.MatchString(`^(?:[a-z0-9_-]+\.)+[a-z0-9_-]+/(?:[a-z0-9_-]+-)?$`, prefix)
	if !ok || err != nil || len(domain) > 253 || len(name) > 63-len("public-ipv6-overwrite") {
		return keys{}, fmt.Errorf("%q: want a domain such as %s, or one with a name, as in example.com/blue",
			clip(given), DefaultPrefix)
	}
	return keys{
		managed: prefix + "kube-subnet-manager", backendType: prefix + "backend-type",
		data: prefix + "backend-data", v6data: prefix + "backend-v6-data",
		public: prefix + "public-ip", publicV6: prefix + "public-ipv6",
		overwrite: prefix + "public-ip-overwrite", overwriteV6: prefix + "public-ipv6-overwrite",
		nodePublicIP: prefix + "node-public-ip", nodePublic6: prefix + "node-public-ipv6",
		weft: prefix + "weft",
	}, nil
}

// written are the annotations that a node writes about itself.
func (k keys) written() [7]string {
	return [...]string{k.managed, k.backendType, k.data, k.v6data, k.public, k.publicV6, k.weft}
}

// isManaged reports whether the Node takes part: all others are ignored by everybody.
func (k keys) isManaged(annotations map[string]string) bool { return annotations[k.managed] == "true" }

// encode returns what a node writes, as flannel does: the IPv4 keys always, and the IPv6 keys for a node with
// such an address, but neither for a backend b that needs data of its own there and has none. Keys missing
// from the result are removed from the Node. The error is about a.BackendData or a.BackendV6Data that are not
// JSON.
func (k keys) encode(a lease.Attrs, b Backend) (map[string]string, error) {
	out := map[string]string{k.managed: "true", k.backendType: a.BackendType}
	if !b.DataV4 || a.BackendData != nil {
		out[k.data], out[k.public] = dataText(a.BackendData), a.PublicIP.String()
		if !a.PublicIP.IsValid() {
			out[k.public] = netip.IPv4Unspecified().String()
		}
	}
	if a.PublicIPv6.IsValid() && (!b.DataV6 || a.BackendV6Data != nil) {
		out[k.v6data], out[k.publicV6] = dataText(a.BackendV6Data), a.PublicIPv6.String()
	}
	for _, key := range [...]string{k.data, k.v6data} {
		if text, ok := out[key]; ok && !json.Valid([]byte(text)) {
			return nil, fmt.Errorf("%s %q is not JSON", key, clip(text))
		}
	}
	if a.Weft != nil {
		return out, k.tie(out, a.Weft)
	}
	return out, nil
}

// dataText is a backend's data as flannel writes it: null is a text too.
func dataText(raw json.RawMessage) string {
	if raw == nil {
		return "null"
	}
	return strings.TrimSpace(string(raw))
}

// decode reads what a node wrote about itself. The error wraps ErrAnnotation.
func (k keys) decode(annotations map[string]string) (lease.Attrs, error) {
	for _, key := range k.written() {
		if n := len(annotations[key]); n > maxValue {
			return lease.Attrs{}, fmt.Errorf("%w: %s is %d bytes, more than %d", ErrAnnotation, key, n, maxValue)
		}
	}
	a := lease.Attrs{BackendType: annotations[k.backendType]}
	if len(a.BackendType) > maxType {
		return lease.Attrs{}, fmt.Errorf("%w: %s %q", ErrAnnotation, k.backendType, clip(a.BackendType))
	}
	var err [5]error
	a.BackendData, err[0] = decodeData(k.data, annotations)
	a.BackendV6Data, err[1] = decodeData(k.v6data, annotations)
	a.PublicIP, err[2] = decodeAddr(k.public, annotations, netip.Addr.Is4)
	a.PublicIPv6, err[3] = decodeAddr(k.publicV6, annotations, isIPv6)
	a.Weft, err[4] = k.tied(annotations)
	for _, e := range err {
		if e != nil {
			return lease.Attrs{}, e
		}
	}
	return a, nil
}

func decodeData(key string, annotations map[string]string) (json.RawMessage, error) {
	text := strings.TrimSpace(annotations[key])
	switch {
	case text == "", text == "null":
		return nil, nil
	case !json.Valid([]byte(text)):
		return nil, fmt.Errorf("%w: %s %q is not JSON", ErrAnnotation, key, clip(text))
	}
	return json.RawMessage(text), nil
}

// decodeAddr reads an address of one family; none, and 0.0.0.0 or ::, give the zero Addr.
func decodeAddr(key string, annotations map[string]string, of func(netip.Addr) bool) (netip.Addr, error) {
	text := annotations[key]
	if text == "" {
		return netip.Addr{}, nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || !of(a) || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%w: %s %q is not an address of its family", ErrAnnotation, key, clip(text))
	}
	if a.IsUnspecified() {
		return netip.Addr{}, nil
	}
	return a, nil
}

func isIPv6(a netip.Addr) bool { return a.Is6() && !a.Is4In6() }

// nodePublic reads what replaces --public-ip and --public-ipv6. The error wraps ErrAnnotation.
func (k keys) nodePublic(annotations map[string]string) (v4, v6 netip.Addr, err error) {
	v4, err4 := decodeAddr(k.nodePublicIP, annotations, netip.Addr.Is4)
	v6, err6 := decodeAddr(k.nodePublic6, annotations, isIPv6)
	return v4, v6, errors.Join(err4, err6)
}

// overwrites reads what an administrator has us publish instead of our own addresses. One that
// does not parse is absent, and a fault.
func (k keys) overwrites(annotations map[string]string) (v4, v6 netip.Addr, faults []string) {
	v4, err4 := decodeAddr(k.overwrite, annotations, netip.Addr.Is4)
	v6, err6 := decodeAddr(k.overwriteV6, annotations, isIPv6)
	for _, err := range []error{err4, err6} {
		if err != nil {
			faults = append(faults, err.Error())
		}
	}
	return v4, v6, faults
}

// clip shortens what a stranger wrote, for an error.
func clip(s string) string {
	const most = 60
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
