package routing

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"weft/lease"
	"weft/lease/redact"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
)

// Network is a network configuration, read once: nothing else reads the text of Backend. It is a value that
// is never changed. The zero Network is none.
type Network struct {
	lease.NetworkConfig
	// Raw is the text.
	Raw []byte
	// Unknown are the keys of the text that nobody reads, in its order.
	Unknown []UnknownKey
	// NoMasquerade are destinations to which packets go with the sender's own address although --ip-masq is on.
	NoMasquerade []netip.Prefix
	probe        bool
	settings     settings // nil for the zero Network
}

// Parse reads a whole network configuration, and says whether this program can serve it. The error joins a
// *lease.ConfigError for each fault; the result then has Raw and Unknown only.
func Parse(raw []byte) (Network, error) { return BuiltIn().Parse(raw) }

// Parse is Parse for a program that has these types.
func (ts Types) Parse(raw []byte) (Network, error) {
	c, err := lease.ParseNetworkConfig(raw)
	n := Network{NetworkConfig: c, Raw: raw, Unknown: ts.unknownKeys(raw)}
	if c.BackendType != "" { // otherwise that fault is among the others
		err = errors.Join(err, n.read(ts))
	}
	if err != nil {
		ts.suggest(err)
		return Network{Raw: raw, Unknown: n.Unknown}, err
	}
	return n, nil
}

// read reads the Backend object.
func (n *Network) read(ts Types) error {
	t, ok := ts.named(n.BackendType)
	if !ok {
		return &lease.ConfigError{Key: "Backend.Type", Got: strconv.Quote(n.BackendType),
			Want: fmt.Sprintf("one of %q", ts.Names())}
	}
	o, err := objectOf(n.NetworkConfig)
	if err != nil {
		return err
	}
	s := t.Settings(n.NetworkConfig, o.has)
	keys := keysOf(s)
	err = o.read(keys, n.EnableIPv6)
	if t.Name != typeAuto && o.has(encryptName) { // a wish to encrypt must not be overlooked
		err = errors.Join(err, &lease.ConfigError{Key: backendPrefix + encryptName,
			Got: string(o[strings.ToLower(encryptName)]), Want: fmt.Sprintf("no such key with type %s: it is one of "+
				"type %s, and type %s encrypts without it", t.Name, typeAuto, typeWireGuard)})
	}
	if why := s.Facts().OnlyIPv4; why != "" && n.EnableIPv6 {
		err = errors.Join(err, &lease.ConfigError{Key: "EnableIPv6", Got: "true", Want: "false: " + why +
			"; udp, vxlan, host-gw and wireguard carry both"})
	}
	if x, ok := s.(checker); ok && err == nil {
		err = x.fault()
	}
	var shared common
	err = errors.Join(err, o.read(keysOf(&shared), n.EnableIPv6))
	slices.SortFunc(shared.NoMasquerade, netip.Prefix.Compare)
	n.NoMasquerade, n.probe, n.settings = slices.Compact(shared.NoMasquerade), shared.Probe, s
	return err
}

// Facts are those of the backend; the zero Facts for the zero Network.
func (n Network) Facts() Facts {
	if n.settings == nil {
		return Facts{}
	}
	return n.settings.Facts()
}

// MTU is the largest inner packet, in bytes, that the backend would have over u, without making it. The error
// is why it would not start there.
func (n Network) MTU(u underlay.Link) (int, error) {
	if n.settings == nil {
		return 0, nil
	}
	m, err := n.settings.sizes(u)
	if err != nil {
		err = fmt.Errorf("%s backend over %s: %w", n.BackendType, u.Name, err)
	}
	return m.inner, err
}

// Change is one thing in which two network configurations differ.
type Change struct {
	// Key is the key, and Now and Then are its values; these are "" for a secret.
	Key, Now, Then string
	// Seen says that peers or pods see it. Cuts says that nodes of which only one has changed do not hear each
	// other.
	Seen, Cuts bool
}

func (c Change) String() string {
	s := c.Key
	if c.Now != c.Then {
		s += fmt.Sprintf(" from %s to %s", c.Now, c.Then)
	}
	if c.Cuts {
		s += ": this node and those that have the other one do not hear each other"
	}
	return s
}

// Diff lists what is another in next: what a reload or a restart that takes it up would change. Changes that
// only this node sees come last.
func (n Network) Diff(next Network) (seen []Change) {
	change := func(key string, now, then any) {
		if now != then {
			seen = append(seen, Change{Key: key, Now: fmt.Sprint(now), Then: fmt.Sprint(then), Seen: true})
		}
	}
	change("type", n.BackendType, next.BackendType)
	change("network", lease.Subnets{V4: n.Network, V6: n.IPv6Network}.String(),
		lease.Subnets{V4: next.Network, V6: next.IPv6Network}.String())
	change("port", n.Facts().Port, next.Facts().Port)
	change("SubnetLen", n.SubnetLen, next.SubnetLen)
	change("IPv6SubnetLen", n.IPv6SubnetLen, next.IPv6SubnetLen)
	if n.settings == nil || next.settings == nil {
		return seen
	}
	var own []Change
	a, _ := objectOf(n.NetworkConfig) // both were read
	b, _ := objectOf(next.NetworkConfig)
	then := map[string]key{}
	for _, k := range keysOf(next.settings) {
		then[k.name] = k
	}
	for _, k := range keysOf(n.settings) {
		other, both := then[k.name]
		if !both || reflect.DeepEqual(k.value.Interface(), other.value.Interface()) {
			continue
		}
		c := Change{Key: k.name}
		switch k.tag.Get("shared") {
		case "port": // it is said already
			continue
		case "":
			if c.Now, c.Then = a.text(k.name), b.text(k.name); k.secret() {
				c.Now, c.Then = "", ""
			}
			own = append(own, c)
			continue
		case "always":
			c.Cuts = true
		default:
			c.Cuts = k.value.IsZero() || other.value.IsZero()
		}
		if c.Seen = true; !k.secret() {
			c.Now, c.Then = shown(k.value), shown(other.value)
		}
		seen = append(seen, c)
	}
	return append(seen, own...)
}

// shown is a value in a message.
func shown(v reflect.Value) string {
	if v.Kind() == reflect.String {
		return strconv.Quote(v.String())
	}
	return fmt.Sprint(v.Interface())
}

// text is the value of a key as it is written.
func (o object) text(name string) string {
	if v := o[strings.ToLower(name)]; given(v) {
		return string(v)
	}
	return "the default"
}

// UnknownKey is a key of a network config that nobody reads: flannel's and this program's keys
// are known, whichever type they are for.
type UnknownKey struct {
	// Key is the JSON key, with Backend before one of the backend's.
	Key string
	// Meant is the key that was most likely meant, "" if none is like it.
	Meant string
}

func (u UnknownKey) String() string {
	s := fmt.Sprintf("network config: %s is not known, and has no effect", u.Key)
	if u.Meant != "" {
		s += fmt.Sprintf("; did you mean %s?", u.Meant)
	}
	return s
}

const backendPrefix = "Backend."

// keys are those of a type, in each form that it has.
func (t Type) keys() []key {
	bare := t.Settings(lease.NetworkConfig{}, func(string) bool { return false })
	full := t.Settings(lease.NetworkConfig{}, func(string) bool { return true })
	return append(keysOf(bare), keysOf(full)...)
}

// backendKeys are those of the Backend object that one of the types reads, besides Type.
func (ts Types) backendKeys() []key {
	keys := keysOf(new(common))
	for _, t := range ts {
		for _, k := range t.keys() {
			if !slices.ContainsFunc(keys, func(have key) bool { return have.name == k.name }) {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// flannelBackendKeys are those of flannel's types that are not ours, and of its Windows nodes: a
// mixed cluster has them for a reason.
func flannelBackendKeys() []string {
	return []string{
		"UDPEncap", "ESPProposal", // ipsec
		"AccessKeyID", "AccessKeySecret", "RouteTableID", // clouds
		"Name", "ApiVersion", // Windows
	}
}

// unknownKeys lists the keys of the text that nobody reads; none for a text that is no JSON.
func (ts Types) unknownKeys(b []byte) []UnknownKey {
	var network []string
	for _, k := range networkKeys() {
		network = append(network, k.Name)
	}
	own := []string{"Type"}
	for _, k := range ts.backendKeys() {
		own = append(own, k.name)
	}
	known := slices.Concat(own, flannelBackendKeys())
	var out []UnknownKey
	for _, e := range entries(b) {
		if strings.EqualFold(e.key, "Backend") {
			for _, i := range entries(e.value) {
				if !isOneOf(i.key, known) {
					out = append(out, UnknownKey{backendPrefix + i.key, nearestKey(i.key, own, backendPrefix, network, "")})
				}
			}
			continue
		}
		if !isOneOf(e.key, network) {
			out = append(out, UnknownKey{e.key, nearestKey(e.key, network, "", own, backendPrefix)})
		}
	}
	return out
}

// nearestKey looks among the keys where key stands, and then for the same key elsewhere.
func nearestKey(key string, here []string, prefix string, there []string, therePrefix string) string {
	for _, k := range there {
		if strings.EqualFold(k, key) {
			return therePrefix + k
		}
	}
	if k := lease.Nearest(key, here...); k != "" {
		return prefix + k
	}
	if k := lease.Nearest(key, there...); k != "" {
		return therePrefix + k
	}
	return ""
}

func isOneOf(key string, known []string) bool {
	return slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, key) })
}

// suggest has each *lease.ConfigError in err say which word was most likely meant.
func (ts Types) suggest(err error) {
	for _, e := range kernel.Joined(err) {
		var fault *lease.ConfigError
		if _, joined := e.(interface{ Unwrap() []error }); joined {
			ts.suggest(e)
		} else if errors.As(e, &fault) && fault.Meant == "" {
			got := fault.Got
			if word, err := strconv.Unquote(got); err == nil {
				got = word
			}
			fault.Meant = lease.Nearest(got, ts.words(fault.Key)...)
		}
	}
}

// words are the values of a key that takes words, with Backend before one of the backend's.
func (ts Types) words(name string) []string {
	if name == backendPrefix+"Type" {
		return ts.Names()
	}
	for _, k := range ts.backendKeys() {
		if name == backendPrefix+k.name {
			return k.words()
		}
	}
	return nil
}

// hiddenKey stands where a secret of a network config was. It has a key's form, so that what reads the text
// goes on as before, and says what it is.
const hiddenKey = "hiddenhiddenhiddenhiddenhiddenhiddenhidden4="

// WithoutSecrets returns the text of a network config with its secrets hidden, for logs, statuses and
// reports. The text need not be valid.
func WithoutSecrets(config []byte) []byte {
	keys := BuiltIn().backendKeys()
	return redact.JSON(config, func(name, value string) (string, bool) {
		switch {
		case slices.ContainsFunc(keys, func(k key) bool { return k.secret() && strings.EqualFold(name, k.name) }):
			return hiddenKey, true
		case redact.Name(name):
			return redact.Struck, true
		case strings.Contains(value, " "), strings.Contains(value, "://"):
			// a command, which may have anything in it
			shown := string(redact.New().Text([]byte(value)))
			return shown, shown != value
		}
		return "", false
	})
}

// ShowsAll reports whether the text of a network config has no secret, and none that WithoutSecrets has
// hidden, so that it can be printed for somebody to write it back.
func ShowsAll(config []byte) bool {
	for _, hidden := range []string{hiddenKey, redact.Struck} {
		if bytes.Contains(config, []byte(hidden)) {
			return false
		}
	}
	return len(config) > 0 && bytes.Equal(config, WithoutSecrets(config))
}
