package routing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"weft/lease"
	"weft/tunnel/port"
)

// The exported fields of a type's settings, and of what these embed, are the keys of its Backend object. A
// field has the key's name; these tags say the rest:
//
//	default:"8285"       the value without the key; else it is the first of words, or zero
//	range:"1..65535"     for a number; range6 takes its place in a network that has IPv6
//	words:"auto on off"  for a string that is one of them, in any case
//	want:"a list"        what to write, for a type with UnmarshalJSON
//	secret:"yes"         nobody is shown the value
//	shared:"always"      nodes that have different values do not hear each other; with "given" only if one
//	                     has none; with "port" it is Facts.Port
type key struct {
	name  string
	tag   reflect.StructTag
	value reflect.Value
}

// keysOf lists the keys of settings, which is a pointer to a struct.
func keysOf(settings any) []key { return fieldsOf(reflect.ValueOf(settings).Elem()) }

func fieldsOf(v reflect.Value) (keys []key) {
	for i := range v.NumField() {
		switch f := v.Type().Field(i); {
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			keys = append(keys, fieldsOf(v.Field(i))...)
		case f.IsExported():
			keys = append(keys, key{f.Name, f.Tag, v.Field(i)})
		}
	}
	return keys
}

func (k key) secret() bool    { return k.tag.Get("secret") != "" }
func (k key) words() []string { return strings.Fields(k.tag.Get("words")) }

// reset gives the key the value that it has without one in the text.
func (k key) reset() {
	text, given := k.tag.Lookup("default")
	if words := k.words(); !given && len(words) > 0 {
		text = words[0]
	}
	switch n, _ := strconv.Atoi(text); k.value.Kind() {
	case reflect.Bool:
		k.value.SetBool(text == "true")
	case reflect.String:
		k.value.SetString(text)
	case reflect.Int:
		k.value.SetInt(int64(n))
	case reflect.Uint16, reflect.Uint32:
		k.value.SetUint(uint64(n))
	default:
		k.value.SetZero()
	}
}

// read takes a value of the text. It returns what is wanted instead; "" if nothing is wrong.
func (k key) read(raw json.RawMessage, ipv6 bool) (want string) {
	to := k.value.Addr().Interface()
	if u, ok := to.(json.Unmarshaler); ok {
		if err := u.UnmarshalJSON(raw); err != nil {
			return k.tag.Get("want") + ": " + err.Error()
		}
		return ""
	}
	switch k.value.Kind() {
	case reflect.Bool:
		if json.Unmarshal(raw, to) != nil {
			return "true or false"
		}
	case reflect.String:
		return k.readText(raw)
	default:
		return k.readNumber(raw, ipv6)
	}
	return ""
}

func (k key) readText(raw json.RawMessage) (want string) {
	var text string
	err := json.Unmarshal(raw, &text)
	words := k.words()
	switch {
	case len(words) == 0 && err != nil:
		return "a string"
	case len(words) == 0:
		k.value.SetString(text)
		return ""
	case err == nil && text == "":
		return ""
	}
	for _, w := range words {
		if err == nil && strings.EqualFold(w, text) {
			k.value.SetString(w)
			return ""
		}
	}
	return fmt.Sprintf("one of %q", words)
}

func (k key) readNumber(raw json.RawMessage, ipv6 bool) (want string) {
	limits := k.tag.Get("range")
	if six, ok := k.tag.Lookup("range6"); ok && ipv6 {
		limits = six
	}
	least, most, _ := strings.Cut(limits, "..")
	from, _ := strconv.Atoi(least)
	to, _ := strconv.Atoi(most)
	n := 0
	if json.Unmarshal(raw, &n) != nil || n < from || n > to {
		return fmt.Sprintf("a number from %s to %s", least, most)
	}
	k.value.Set(reflect.ValueOf(n).Convert(k.value.Type()))
	return ""
}

// object is the Backend object by its keys in lower case: keys match in any case, and of two that differ only
// in case the later one counts, as with flannel.
type object map[string]json.RawMessage

func objectOf(c lease.NetworkConfig) (object, error) {
	if len(c.Backend) == 0 {
		return nil, nil
	}
	if json.Unmarshal(c.Backend, new(map[string]json.RawMessage)) != nil {
		return nil, &lease.ConfigError{Key: "Backend", Got: string(c.Backend), Want: "a JSON object"}
	}
	o := object{}
	for _, e := range entries(c.Backend) {
		o[strings.ToLower(e.key)] = e.value
	}
	return o, nil
}

func (o object) has(name string) bool { _, there := o[strings.ToLower(name)]; return there }

// read reads keys. The error joins a *lease.ConfigError for each fault, in the order of keys.
func (o object) read(keys []key, ipv6 bool) error {
	var faults []error
	for _, k := range keys {
		k.reset()
		value := o[strings.ToLower(k.name)]
		if !given(value) {
			continue
		}
		if want := k.read(value, ipv6); want != "" {
			got := string(value)
			if k.secret() {
				got = "something else (it is a secret, and not shown)"
			}
			faults = append(faults, &lease.ConfigError{Key: backendPrefix + k.name, Got: got, Want: want})
		}
	}
	return errors.Join(faults...)
}

// given reports whether there is a value: null is none.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

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

// prefixes are networks, masked.
type prefixes []netip.Prefix

// UnmarshalJSON implements json.Unmarshaler.
func (ps *prefixes) UnmarshalJSON(raw []byte) error {
	var words []string
	if err := json.Unmarshal(raw, &words); err != nil {
		return errors.New("it is no list of strings")
	}
	*ps = nil
	var errs []error
	for _, w := range words {
		p, err := netip.ParsePrefix(w)
		if err != nil || p.Addr().Is4In6() {
			errs = append(errs, fmt.Errorf("%q is no network", w))
			continue
		}
		*ps = append(*ps, p.Masked())
	}
	return errors.Join(errs...)
}

// offloads are those that paths socket and raw do without.
type offloads struct{ set port.OffloadSet }

// UnmarshalJSON implements json.Unmarshaler.
func (o *offloads) UnmarshalJSON(raw []byte) error {
	var names []string
	err := json.Unmarshal(raw, &names)
	if err == nil {
		o.set, err = port.ParseOffloads(names)
	}
	return err
}
