package routing

import (
	"context"

	"weft/lease"
)

// typeAuto is vxlan in its records and on the wire, with plain routes to the peers that can be reached by them. Each
// node finds out for itself what it can do, and all are in one network. With the key Encrypt it is wireguard in place of vxlan.
const typeAuto = "auto"

func autoType() Type {
	t := vxlanType()
	t.Name, t.Settings = typeAuto, func(c lease.NetworkConfig, has func(string) bool) settings {
		if has("Encrypt") {
			return newEncrypted(c)
		}
		return &auto{vxlan: *newVXLAN(c)}
	}
	return t
}

// encryptKey is the key with which the settings of type auto are others. No word means no: a network that is not to be
// encrypted has no such key, so that a text that was lost on the way is a fault.
type encryptKey struct {
	Encrypt string `words:"always between-links" empty:", or no such key for a network that is not encrypted" only:"and type wireguard encrypts without it" shared:"given"`
}

// auto are the settings without the key Encrypt.
type auto struct {
	vxlan
	encryptKey
}

// Open implements settings. The key DirectRouting has no effect.
func (a *auto) Open(ctx context.Context, c BackendConfig) (*Node, error) {
	v := a.vxlan
	v.auto, v.DirectRouting = true, true
	return v.Open(ctx, c)
}
