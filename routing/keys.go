package routing

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"weft/lease"
	"weft/routing/internal/plane"
	"weft/tunnel"
)

// Key declares one key of the Backend object, and knows how to read it. The functions below make Keys; each sets the
// variable of the key to the value that it has without the key.
type Key struct {
	// Name is as people write it; it is found in any case.
	Name string
	// Words are those that it takes, nil for a key that takes other than words.
	Words []string
	// Secret says that the value is not to be shown to anybody, also not in an error.
	Secret bool
	// nullCounts says that null is a value for read, and not as if there were no such key.
	nullCounts bool
	// read takes the value, which is JSON and not null but with nullCounts. It returns what is wanted instead; "" if nothing is wrong.
	read func(value json.RawMessage) (want string)
}

// readKeys reads the Backend object of c. Keys match in any case; of two that differ only in case the later
// one counts, and unknown ones are ignored, as with flannel. The error joins a *lease.ConfigError for each fault, in the order of keys.
func readKeys(c lease.NetworkConfig, keys []Key) error {
	if len(c.Backend) == 0 {
		return nil
	}
	if object := (map[string]json.RawMessage)(nil); json.Unmarshal(c.Backend, &object) != nil {
		return &lease.ConfigError{Key: "Backend", Got: string(c.Backend), Want: "a JSON object"}
	}
	values := map[string]json.RawMessage{}
	for _, e := range entries(c.Backend) {
		values[strings.ToLower(e.key)] = e.value
	}
	var faults []error
	for _, k := range keys {
		value, there := values[strings.ToLower(k.Name)]
		if !given(value) && !(there && k.nullCounts) {
			continue
		}
		if want := k.read(value); want != "" {
			got := string(value)
			if k.Secret {
				got = "something else (it is a secret, and not shown)"
			}
			faults = append(faults, &lease.ConfigError{Key: backendPrefix + k.Name, Got: got, Want: want})
		}
	}
	return errors.Join(faults...)
}

// given reports whether there is a value: null is none.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// numberKey takes a whole number from least to most.
func numberKey[T ~int | ~uint16 | ~uint32](name string, to *T, absent T, least, most int) Key {
	*to = absent
	return Key{Name: name, read: func(value json.RawMessage) string {
		var n int
		if json.Unmarshal(value, &n) != nil || n < least || n > most {
			return fmt.Sprintf("a number from %d to %d", least, most)
		}
		*to = T(n)
		return ""
	}}
}

// booleanKey is false without the key.
func booleanKey(name string, to *bool) Key {
	*to = false
	return Key{Name: name, read: func(value json.RawMessage) string {
		if json.Unmarshal(value, to) != nil {
			return "true or false"
		}
		return ""
	}}
}

// textKey is "" without the key. check, if not nil, says what is wanted instead of a text; "" if nothing is wrong with it.
func textKey(name string, check func(string) (want string)) Key {
	return Key{Name: name, read: func(value json.RawMessage) string {
		var text string
		if json.Unmarshal(value, &text) != nil {
			return "a string"
		}
		return check(text)
	}}
}

// wordKey takes one of words, in any case; the first of them without the key.
func wordKey(name string, to *string, words ...string) Key {
	*to = words[0]
	return Key{Name: name, Words: words, read: func(value json.RawMessage) string {
		var got string
		if json.Unmarshal(value, &got) == nil {
			if got == "" {
				return ""
			}
			for _, w := range words {
				if strings.EqualFold(w, got) {
					*to = w
					return ""
				}
			}
		}
		return fmt.Sprintf("one of %q", words)
	}}
}

// mtuKey is the largest outer packet, in bytes, of which overhead is the tunnel's; 0 without the key.
func mtuKey(to *int, overhead int, ipv6 bool) Key {
	least := minMTU4
	if ipv6 {
		least = minMTU6 + overhead
	}
	return numberKey("MTU", to, 0, least, 65535)
}

// dataPlaneKeys are those about how weft's own data plane moves packets.
func dataPlaneKeys(path *tunnel.Path, auto *bool, off *tunnel.OffloadSet, forwarding *string) []Key {
	*path, *auto, *off = tunnel.PathRaw, true, 0
	return []Key{
		{Name: "Path", Words: PathWords(), read: func(value json.RawMessage) string {
			var word string
			err := json.Unmarshal(value, &word)
			if err == nil {
				*path, *auto, err = resolvePath(word)
			}
			if err != nil {
				return pathsWanted()
			}
			return ""
		}},
		{Name: "DisableOffloads", read: func(value json.RawMessage) string {
			var names []string
			err := json.Unmarshal(value, &names)
			if err == nil {
				*off, err = tunnel.ParseOffloads(names)
			}
			if err != nil {
				return `a list of offloads as ["tun-tso"]: ` + err.Error()
			}
			return ""
		}},
		wordKey("RxUDPGROForwarding", forwarding, plane.ForwardingWords()...),
	}
}

// sourceKeys are those about senders, which every type has. Without the key the check is what
// tunnel.ParseSourceCheck makes of no word: there is no other default.
func sourceKeys(check *tunnel.SourceCheck, allowed *[]netip.Prefix) []Key {
	*check, _ = tunnel.ParseSourceCheck("")
	return []Key{
		{Name: "SourceCheck", Words: []string{tunnel.CheckStrict.String(), tunnel.CheckOuter.String(), tunnel.CheckOff.String()}, read: func(value json.RawMessage) string {
			var word string
			err := json.Unmarshal(value, &word)
			if err == nil {
				*check, err = tunnel.ParseSourceCheck(word)
			}
			if err != nil {
				return `"strict", "outer" or "off"`
			}
			return ""
		}},
		{Name: "AllowedSources", read: func(value json.RawMessage) (want string) {
			var err error
			if *allowed, err = parsePrefixes(value); err != nil {
				return `a list of networks as ["192.0.2.0/24"]: ` + err.Error()
			}
			return ""
		}},
	}
}

func parsePrefixes(value json.RawMessage) ([]netip.Prefix, error) {
	var words []string
	if err := json.Unmarshal(value, &words); err != nil {
		return nil, errors.New("it is no list of strings")
	}
	var ps []netip.Prefix
	var errs []error
	for _, w := range words {
		p, err := netip.ParsePrefix(w)
		if err != nil || p.Addr().Is4In6() {
			errs = append(errs, fmt.Errorf("%q is no network", w))
			continue
		}
		ps = append(ps, p.Masked())
	}
	return ps, errors.Join(errs...)
}
