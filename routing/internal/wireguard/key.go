package wireguard

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"unique"
)

// KeyLen is the length of each of WireGuard's keys, in bytes.
const KeyLen = 32

// PublicKey is a node's identity on the wire. It is comparable.
type PublicKey [KeyLen]byte

// String is the base64 of records and of wg(8).
func (k PublicKey) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

func (k PublicKey) compare(o PublicKey) int { return slices.Compare(k[:], o[:]) }

// ParsePublicKey reads what String writes. The key of all zeros is nobody's.
func ParsePublicKey(text string) (PublicKey, error) {
	b, err := parseKey(text)
	return b, err
}

// Secret is a private key or a preshared one. It is comparable, and however it is printed, nothing of it is
// seen: a field that is not exported is printed without the methods of its type, which is why the bytes are
// behind two handles: fmt follows one, for a verb that does not fit.
type Secret struct{ key unique.Handle[handle] }

type handle struct{ key unique.Handle[[KeyLen]byte] }

func newSecret(b [KeyLen]byte) Secret {
	if b == [KeyLen]byte{} {
		return Secret{}
	}
	return Secret{unique.Make(handle{unique.Make(b)})}
}

// bytes are the key's; zeros for none.
func (s Secret) bytes() (b [KeyLen]byte) {
	if !s.IsZero() {
		b = s.key.Value().key.Value()
	}
	return b
}

// hidden is what a Secret looks like.
const hidden = "(hidden)"

// String implements fmt.Stringer.
func (Secret) String() string { return hidden }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return hidden }

// Format implements fmt.Formatter, so that no verb shows the bytes.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText implements encoding.TextMarshaler, and so for JSON.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// IsZero reports whether there is no key.
func (s Secret) IsZero() bool { return s == Secret{} }

// Public is the public key that belongs to a private one.
func (s Secret) Public() (PublicKey, error) {
	b := s.bytes()
	k, err := ecdh.X25519().NewPrivateKey(b[:])
	if err != nil {
		return PublicKey{}, errors.New("the private key is none of Curve25519's") // without what it is
	}
	return PublicKey(k.PublicKey().Bytes()), nil
}

// base64 is the form of the key file.
func (s Secret) base64() string {
	b := s.bytes()
	return base64.StdEncoding.EncodeToString(b[:])
}

// ParseSecret reads a key in base64. The error does not quote it.
func ParseSecret(text string) (Secret, error) {
	b, err := parseKey(text)
	return newSecret(b), err
}

// NewPrivateKey makes one.
func NewPrivateKey() Secret {
	var b [KeyLen]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[0] &^= 7             // as RFC 7748, section 5, has scalars
	b[KeyLen-1] = b[KeyLen-1]&^0x80 | 0x40
	return newSecret(b)
}

func parseKey(text string) (k [KeyLen]byte, err error) {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != KeyLen {
		return k, fmt.Errorf("it is no key: a key is %d bytes in base64, which are %d characters, and this has %d",
			KeyLen, base64.StdEncoding.EncodedLen(KeyLen), len(text))
	}
	if k = [KeyLen]byte(b); k == [KeyLen]byte{} {
		return k, errors.New("it is a key of zeros only, which is nobody's")
	}
	return k, nil
}
