package lease

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"
)

// configParser collects faults while it reads, so that one run reports them all.
type configParser struct {
	cfg    NetworkConfig
	faults []error
	bad    map[string]bool // keys already at fault, whose rules are not checked again
}

func (p *configParser) fault(key, got, want string) {
	p.faults = append(p.faults, &ConfigError{Key: key, Got: got, Want: want})
	if p.bad == nil {
		p.bad = map[string]bool{}
	}
	p.bad[key] = true
}

// configKeys are the keys in the order in which their faults are reported.
var configKeys = [...]string{
	"EnableIPv4", "EnableIPv6", "EnableNFTables",
	"Network", "SubnetLen", "SubnetMin", "SubnetMax",
	"IPv6Network", "IPv6SubnetLen", "IPv6SubnetMin", "IPv6SubnetMax",
	"Backend",
}

func (p *configParser) parse(b []byte) {
	values, ok := p.split(b)
	if !ok {
		return
	}
	p.cfg.EnableIPv4 = p.boolean(values, "EnableIPv4", true)
	p.cfg.EnableIPv6 = p.boolean(values, "EnableIPv6", false)
	p.cfg.EnableNFTables = p.boolean(values, "EnableNFTables", false)
	v4 := p.family(values, family4)
	v6 := p.family(values, family6)
	p.backend(values)
	if !p.cfg.EnableIPv4 && !p.cfg.EnableIPv6 && !p.bad["EnableIPv4"] && !p.bad["EnableIPv6"] {
		p.fault("EnableIPv4", "false, and EnableIPv6 too", "at least one of them true")
	}
	if p.cfg.EnableIPv4 {
		v4 = p.rules(v4, family4)
		p.cfg.Network, p.cfg.SubnetLen, p.cfg.SubnetMin, p.cfg.SubnetMax = v4.network, v4.bits, v4.min, v4.max
	}
	if p.cfg.EnableIPv6 {
		v6 = p.rules(v6, family6)
		p.cfg.IPv6Network, p.cfg.IPv6SubnetLen = v6.network, v6.bits
		p.cfg.IPv6SubnetMin, p.cfg.IPv6SubnetMax = v6.min, v6.max
	}
}

// split finds the known keys. Of two keys that differ only in case the later
// one counts, as in encoding/json.
func (p *configParser) split(b []byte) (map[string]json.RawMessage, bool) {
	const want = `one JSON object such as {"Network":"10.244.0.0/16"}`
	if len(bytes.TrimSpace(b)) == 0 {
		p.fault("", "empty", want)
		return nil, false
	}
	if err := json.Unmarshal(b, new(json.RawMessage)); err != nil {
		p.fault("", err.Error(), want)
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		p.fault("", quote(b), want)
		return nil, false
	}
	values := map[string]json.RawMessage{}
	for dec.More() {
		key, err := dec.Token()
		var raw json.RawMessage
		if err == nil {
			err = dec.Decode(&raw)
		}
		if err != nil && err != io.EOF {
			p.fault("", err.Error(), want)
			return nil, false
		}
		for _, known := range configKeys {
			if name, _ := key.(string); strings.EqualFold(name, known) {
				values[known] = raw
			}
		}
	}
	return values, true
}

// quote shows a value in an error, shortened.
func quote(raw []byte) string {
	const most = 60
	s := string(bytes.TrimSpace(raw))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

func (p *configParser) boolean(values map[string]json.RawMessage, key string, absent bool) bool {
	raw, ok := values[key]
	if !ok || isNull(raw) {
		return absent
	}
	var v bool
	if json.Unmarshal(raw, &v) != nil {
		p.fault(key, quote(raw), "true or false")
	}
	return v
}

func (p *configParser) backend(values map[string]json.RawMessage) {
	const want = `an object with a Type such as {"Type":"vxlan"}, or no Backend at all, which means udp`
	raw, ok := values["Backend"]
	if !ok {
		p.cfg.BackendType = DefaultBackend
		return
	}
	var v struct{ Type *string }
	switch err := json.Unmarshal(raw, &v); {
	case err != nil || isNull(raw):
		p.fault("Backend", quote(raw), want)
	case v.Type == nil || *v.Type == "":
		p.fault("Backend", quote(raw)+" without a Type", want)
	default:
		p.cfg.BackendType = strings.ToLower(*v.Type)
		p.cfg.Backend = bytes.Clone(raw)
	}
}

// familyRaw is what the file says about one family; zero where it says nothing.
type familyRaw struct {
	network  netip.Prefix
	bits     int
	min, max netip.Addr
}

// family reads the values of one family without looking at one in the light of another.
func (p *configParser) family(values map[string]json.RawMessage, f family) familyRaw {
	var out familyRaw
	if raw, ok := values[f.prefix+"Network"]; ok {
		var s string
		n, err := netip.Prefix{}, json.Unmarshal(raw, &s)
		if err == nil {
			n, err = netip.ParsePrefix(s)
		}
		if err != nil || !f.is(n.Addr()) {
			p.fault(f.prefix+"Network", quote(raw), fmt.Sprintf("an %s network such as %q", f.name, f.example))
		} else {
			out.network = n.Masked()
		}
	}
	if raw, ok := values[f.prefix+"SubnetLen"]; ok && !isNull(raw) {
		var n uint16
		if json.Unmarshal(raw, &n) != nil {
			p.fault(f.prefix+"SubnetLen", quote(raw), fmt.Sprintf("a length in bits, at most %d", f.maxLen))
		}
		out.bits = int(n)
	}
	out.min = p.address(values, f, f.prefix+"SubnetMin")
	out.max = p.address(values, f, f.prefix+"SubnetMax")
	return out
}

func (p *configParser) address(values map[string]json.RawMessage, f family, key string) netip.Addr {
	raw, ok := values[key]
	if !ok {
		return netip.Addr{}
	}
	var s string
	a, err := netip.Addr{}, json.Unmarshal(raw, &s)
	if err == nil {
		a, err = netip.ParseAddr(s)
	}
	if err != nil || !f.is(a) || a.Zone() != "" {
		p.fault(key, quote(raw), fmt.Sprintf("an %s address inside %sNetwork", f.name, f.prefix))
		return netip.Addr{}
	}
	return a
}
