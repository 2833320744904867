package routing

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"weft/lease"
	"weft/tunnel"
)

// backendKeys reads the Backend object of a network config, and collects the faults.
// Keys match in any case; of two that differ only in case the later one counts, and unknown
// ones are ignored, as with flannel.
type backendKeys struct {
	raw    map[string]json.RawMessage
	faults []error
}

func readBackend(c lease.NetworkConfig) *backendKeys {
	k := &backendKeys{raw: map[string]json.RawMessage{}}
	if len(c.Backend) == 0 {
		return k
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(c.Backend, &object); err != nil {
		k.faults = append(k.faults, &lease.ConfigError{Key: "Backend", Got: string(c.Backend), Want: "a JSON object"})
		return k
	}
	dec := json.NewDecoder(strings.NewReader(string(c.Backend)))
	_, _ = dec.Token() // the brace; it parsed above
	for dec.More() {
		name, _ := dec.Token()
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			break
		}
		if s, ok := name.(string); ok {
			k.raw[strings.ToLower(s)] = value
		}
	}
	return k
}

// err joins one *lease.ConfigError for each fault.
func (k *backendKeys) err() error { return errors.Join(k.faults...) }

func (k *backendKeys) fault(key, want string) {
	k.faults = append(k.faults, &lease.ConfigError{Key: "Backend." + key, Got: string(k.raw[strings.ToLower(key)]), Want: want})
}

// value decodes a key into v, and reports whether it is there and sound.
func (k *backendKeys) value(key, want string, v any) bool {
	raw := k.raw[strings.ToLower(key)]
	if !given(raw) {
		return false
	}
	if json.Unmarshal(raw, v) != nil {
		k.fault(key, want)
		return false
	}
	return true
}

func (k *backendKeys) number(key string, absent, least, most int) int {
	want, n := fmt.Sprintf("a number from %d to %d", least, most), absent
	if !k.value(key, want, &n) {
		return absent
	}
	if n < least || n > most {
		k.fault(key, want)
		return absent
	}
	return n
}

func (k *backendKeys) boolean(key string) (v bool) {
	k.value(key, "true or false", &v)
	return v
}

func (k *backendKeys) text(key string) (v string) {
	k.value(key, "a string", &v)
	return v
}

// word is one of those in want, in lower case; the first if the key is absent.
func (k *backendKeys) word(key string, want ...string) string {
	list := fmt.Sprintf("one of %q", want)
	var got string
	if !k.value(key, list, &got) || got == "" {
		return want[0]
	}
	for _, w := range want {
		if strings.EqualFold(w, got) {
			return w
		}
	}
	k.fault(key, list)
	return want[0]
}

// dataPlane reads the keys about how weft's own data plane moves packets.
func (k *backendKeys) dataPlane() (path tunnel.Path, auto bool, off tunnel.OffloadSet) {
	path, auto, err := resolvePath(k.text("Path"))
	if err != nil {
		k.fault("Path", err.Error())
	}
	var names []string
	const want = `a list of offloads as ["tun-tso"]`
	if k.value("DisableOffloads", want, &names) {
		if off, err = tunnel.ParseOffloads(names); err != nil {
			k.fault("DisableOffloads", want+": "+err.Error())
		}
	}
	return path, auto, off
}

// sources reads the keys about senders, which every type has. Without the key the check is what
// tunnel.ParseSourceCheck makes of no word: there is no other default.
func (k *backendKeys) sources() (check tunnel.SourceCheck, allowed []netip.Prefix) {
	const want = `"strict", "outer" or "off"`
	var word string
	sound := k.value("SourceCheck", want, &word)
	check, err := tunnel.ParseSourceCheck(word)
	if sound && err != nil {
		k.fault("SourceCheck", want)
	}
	allowed, err = parsePrefixes(k.raw["allowedsources"])
	if err != nil {
		k.fault("AllowedSources", `a list of networks as ["192.0.2.0/24"]: `+err.Error())
	}
	return check, allowed
}

// mtu reads the largest outer packet, in bytes, of which overhead is the tunnel's; 0 if absent.
func (k *backendKeys) mtu(overhead int, ipv6 bool) int {
	least := minMTU4
	if ipv6 {
		least = minMTU6 + overhead
	}
	return k.number("MTU", 0, least, 65535)
}
