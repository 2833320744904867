package routing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weft/lease"
	"weft/routing/internal/kernel"
)

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

// networkKeys are those beside Backend; Backend itself stands for its own.
func networkKeys() []string {
	return []string{
		"Network", "SubnetLen", "SubnetMin", "SubnetMax", "EnableIPv4", "EnableIPv6", "EnableNFTables",
		"IPv6Network", "IPv6SubnetLen", "IPv6SubnetMin", "IPv6SubnetMax", "Backend",
	}
}

// backendKeys are those of the Backend object that one of the types reads.
func (ts Types) backendKeys() []Key {
	keys := []Key{{Name: "Type", Words: ts.Names()}, {Name: "NoMasquerade"}, probeKey(new(bool))} // the second is hostrules'
	for _, t := range ts {
		for _, k := range t.Settings(lease.NetworkConfig{}).Keys() {
			if !slices.ContainsFunc(keys, func(have Key) bool { return have.Name == k.Name }) {
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

// UnknownKeys calls UnknownKeys of BuiltIn().
func UnknownKeys(b []byte) []UnknownKey { return BuiltIn().UnknownKeys(b) }

// UnknownKeys lists the keys of the network config b that nobody reads, in b's order; none for
// a text that does not parse, whose fault is ParseConfig's to report.
func (ts Types) UnknownKeys(b []byte) []UnknownKey {
	var own []string
	for _, k := range ts.backendKeys() {
		own = append(own, k.Name)
	}
	known := slices.Concat(own, flannelBackendKeys())
	var out []UnknownKey
	for _, e := range entries(b) {
		if strings.EqualFold(e.key, "Backend") {
			for _, i := range entries(e.value) {
				if !isOneOf(i.key, known) {
					out = append(out, UnknownKey{backendPrefix + i.key, nearestKey(i.key, own, backendPrefix, networkKeys(), "")})
				}
			}
			continue
		}
		if !isOneOf(e.key, networkKeys()) {
			out = append(out, UnknownKey{e.key, nearestKey(e.key, networkKeys(), "", own, backendPrefix)})
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

type entry struct {
	key   string
	value json.RawMessage
}

// entries are the members of a JSON object in their order; nil for anything else.
func entries(b []byte) []entry {
	if !json.Valid(b) {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil
	}
	var out []entry
	for dec.More() {
		name, err := dec.Token()
		key, isText := name.(string)
		var value json.RawMessage
		if err != nil || !isText || dec.Decode(&value) != nil {
			break
		}
		out = append(out, entry{key, value})
	}
	return out
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
func (ts Types) words(key string) []string {
	name, ours := strings.CutPrefix(key, backendPrefix)
	for _, k := range ts.backendKeys() {
		if ours && k.Name == name {
			return k.Words
		}
	}
	return nil
}
