package routing

import (
	"context"
	"errors"
	"fmt"
)

func openHostGW(_ context.Context, c BackendConfig) (Backend, error) {
	o, err := parseHostGW(c.Network)
	if err != nil {
		return nil, err
	}
	u := c.Underlay
	if u.Ext4 != u.Addr4 || u.Ext6 != u.Addr6 {
		return nil, fmt.Errorf("%s backend: peers would be told %v, and %s has %v: routes need the address of the link itself: leave out --public-ip, or use vxlan or udp, which pass a NAT",
			typeHostGW, valid(u.Ext4, u.Ext6), u.Link, u.Local())
	}
	return opened(newKernelBackend(c, hostGW{o}, nil))
}

func openAlloc(_ context.Context, c BackendConfig) (Backend, error) {
	o, err := parseAlloc(c.Network)
	if err != nil {
		return nil, err
	}
	return opened(newKernelBackend(c, alloc{o}, nil))
}

// openVXLAN settles our MACs: a device that is there keeps its own, also if flannel made it, so
// that no peer has to learn another.
func openVXLAN(_ context.Context, c BackendConfig) (Backend, error) {
	o, err := parseVXLAN(c.Network)
	if err != nil {
		return nil, err
	}
	if c.Kernel == nil {
		return nil, fmt.Errorf("%s backend: BackendConfig.Kernel is missing", typeVXLAN)
	}
	w := vxlan{o: o, enabled4: c.Network.EnableIPv4, enabled6: c.Network.EnableIPv6}
	switch user, why, err := c.Kernel.inUserSpace(o); {
	case err != nil:
		return nil, fmt.Errorf("%s backend: %w", typeVXLAN, err)
	case user:
		if why != "" {
			c.Logger.Warn("vxlan is carried in user space", "cause", why)
		}
		return openUserVTEP(c, w, why)
	}
	for _, six := range []bool{false, true} {
		mac := vtepMAC(c.Node, six, o.VNI, o.MACPrefix)
		switch have, err := c.Kernel.vtep(vtepName(six, o.VNI)); {
		case err == nil:
			mac = have.MAC
		case !errors.Is(err, errNoLink) && !errors.Is(err, errNotVXLAN):
			return nil, fmt.Errorf("%s backend: %w", typeVXLAN, err)
		}
		if six {
			w.mac6 = mac
		} else {
			w.mac4 = mac
		}
	}
	return opened(newKernelBackend(c, w, nil))
}

// opened keeps a nil pointer out of the interface.
func opened(b *kernelBackend, err error) (Backend, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}
