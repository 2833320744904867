package wireguard

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"unique"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// PublicKey is a node's identity on the wire.
type PublicKey = wgtypes.Key

func compareKeys(k, o PublicKey) int { return slices.Compare(k[:], o[:]) }

// ParsePublicKey reads what String writes. The key of all zeros is nobody's.
func ParsePublicKey(text string) (PublicKey, error) { return parseKey(text) }

// Secret is a private key or a preshared one. It is comparable, and however it is printed, nothing of it is
// seen: a field that is not exported is printed without the methods of its type, which is why the bytes are
// behind two handles: fmt follows one, for a verb that does not fit.
type Secret struct{ key unique.Handle[handle] }

type handle struct{ key unique.Handle[wgtypes.Key] }

func newSecret(k wgtypes.Key) Secret {
	if k == (wgtypes.Key{}) {
		return Secret{}
	}
	return Secret{unique.Make(handle{unique.Make(k)})}
}

// open is the key; zeros for none.
func (s Secret) open() (k wgtypes.Key) {
	if !s.IsZero() {
		k = s.key.Value().key.Value()
	}
	return k
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
func (s Secret) Public() PublicKey { return s.open().PublicKey() }

// ParseSecret reads a key in base64. The error does not quote it.
func ParseSecret(text string) (Secret, error) {
	b, err := parseKey(text)
	return newSecret(b), err
}

// NewPrivateKey makes one.
func NewPrivateKey() Secret {
	k, _ := wgtypes.GeneratePrivateKey() // crypto/rand never fails
	return newSecret(k)
}

func parseKey(text string) (k wgtypes.Key, err error) {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != wgtypes.KeyLen { // without the text, which may be a secret
		return k, fmt.Errorf("it is no key: a key is %d bytes in base64, which are %d characters, and this has %d",
			wgtypes.KeyLen, base64.StdEncoding.EncodedLen(wgtypes.KeyLen), len(text))
	}
	if k = wgtypes.Key(b); k == (wgtypes.Key{}) {
		return k, errors.New("it is a key of zeros only, which is nobody's")
	}
	return k, nil
}
