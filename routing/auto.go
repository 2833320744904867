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
	t.Name, t.Settings = typeAuto, func(c lease.NetworkConfig) Settings {
		if _, given := encryptGiven(c); given {
			return newEncrypted(c)
		}
		return autoSettings{newVXLAN(c)}
	}
	return t
}

type autoSettings struct{ *vxlanSettings }

// Keys implements Settings. With the last one the settings are others.
func (s autoSettings) Keys() []Key { return append(s.vxlanSettings.Keys(), encryptKey(new(string))) }

// Open implements Settings. The key DirectRouting has no effect.
func (s autoSettings) Open(ctx context.Context, c BackendConfig) (Backend, error) {
	s.Auto, s.DirectRouting = true, true
	return s.vxlanSettings.Open(ctx, c)
}
