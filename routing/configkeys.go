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
)

// UnknownKey is a key of a network config that nobody reads: flannel's and this program's keys
// are known, whichever type they are for.
type UnknownKey struct {
	// Key is the JSON key, with Backend before one of the backend's.
	Key string
	// Meant is what was most likely meant, "" if that is anybody's guess.
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

// ownBackendKeys are those that a type of ours reads, the common ones first.
func ownBackendKeys() []string {
	return []string{
		"Type", "Port", "MTU", "Path", "DisableOffloads", "SourceCheck", "AllowedSources", "NoMasquerade",
		"Userspace", "VNI", "GBP", "Learning", "DirectRouting", "MacPrefix",
		"PreStartupCommand", "PostStartupCommand", "ShutdownCommand", "SubnetAddCommand", "SubnetRemoveCommand",
	}
}

// flannelBackendKeys are those of flannel's types that are not ours, and of its Windows nodes: a
// mixed cluster has them for a reason.
func flannelBackendKeys() []string {
	return []string{
		"ListenPort", "ListenPortV6", "PSK", "Mode", "PersistentKeepaliveInterval", // wireguard
		"UDPEncap", "ESPProposal", // ipsec
		"AccessKeyID", "AccessKeySecret", "RouteTableID", // clouds
		"Name", "ApiVersion", // Windows
	}
}

// UnknownKeys lists the keys of the network config b that nobody reads, in b's order; none for
// a text that does not parse, whose fault is ParseConfig's to report.
func UnknownKeys(b []byte) []UnknownKey {
	var out []UnknownKey
	for _, e := range entries(b) {
		if strings.EqualFold(e.key, "Backend") {
			known := append(ownBackendKeys(), flannelBackendKeys()...)
			for _, i := range entries(e.value) {
				if !isOneOf(i.key, known) {
					out = append(out, UnknownKey{backendPrefix + i.key, nearestKey(i.key, ownBackendKeys(), backendPrefix, networkKeys(), "")})
				}
			}
			continue
		}
		if !isOneOf(e.key, networkKeys()) {
			out = append(out, UnknownKey{e.key, nearestKey(e.key, networkKeys(), "", ownBackendKeys(), backendPrefix)})
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

// configWords are the values of those keys that take a word.
func configWords(key string) []string {
	switch strings.TrimPrefix(key, backendPrefix) {
	case "Type":
		var names []string
		for _, k := range kinds() {
			names = append(names, k.name)
		}
		return names
	case "Path":
		return []string{"auto", "raw", "socket", "portable"}
	case "Userspace":
		return []string{"auto", "always", "never"}
	case "SourceCheck":
		return []string{"strict", "outer", "off"}
	}
	return nil
}

// suggest has each *lease.ConfigError in err say which word was most likely meant.
func suggest(err error) {
	for _, e := range split(err) {
		var fault *lease.ConfigError
		if _, joined := e.(interface{ Unwrap() []error }); joined {
			suggest(e)
		} else if errors.As(e, &fault) && fault.Meant == "" {
			got := fault.Got
			if word, err := strconv.Unquote(got); err == nil {
				got = word
			}
			fault.Meant = lease.Nearest(got, configWords(fault.Key)...)
		}
	}
}
