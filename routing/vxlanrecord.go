package routing

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"weft/encap"
	"weft/routing/internal/kernel"
)

// vtepMAC is the address that a node of that identity gives to its device: the same after every
// boot, another for each node, family and VNI, locally administered and no group's.
func vtepMAC(node string, six bool, vni uint32, prefix *[2]byte) kernel.MAC {
	h := hmac.New(sha256.New, []byte(node))
	_, _ = fmt.Fprintf(h, "weft vtep 1 %s", kernel.VTEPName(six, vni)) // a hash takes everything
	m := kernel.MAC(h.Sum(nil))
	m[0] = m[0]&^1 | 2
	if prefix != nil {
		m[0], m[1] = prefix[0], prefix[1]
	}
	return m
}

// vtepData is BackendData, byte for byte flannel's.
func vtepData(vni uint32, m kernel.MAC) json.RawMessage {
	return fmt.Appendf(nil, `{"VNI":%d,"VtepMAC":"%s"}`, vni, m)
}

// parseVTEPData reads a peer's BackendData. Early flannel wrote no VNI, which is any.
func parseVTEPData(b json.RawMessage, vni uint32) (kernel.MAC, error) {
	if !given(b) {
		return kernel.MAC{}, fmt.Errorf("it publishes none")
	}
	var v struct {
		VNI     *uint32
		VtepMAC string
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return kernel.MAC{}, fmt.Errorf("it publishes %s, which is not what vxlan has", shorten(b))
	}
	if v.VNI != nil && *v.VNI != vni {
		return kernel.MAC{}, fmt.Errorf("its VNI is %d, this network's is %d", *v.VNI, vni)
	}
	return kernel.ParseMAC(v.VtepMAC)
}

// shorten quotes what a record says, for a message.
func shorten(b []byte) string {
	const most = 60
	return fmt.Sprintf("%.*q", most, b)
}

// vtepMTU is the largest inner packet of one family's device, in bytes: with an IPv6 outer
// header 70 bytes less than outside, with IPv4's 50.
func vtepMTU(link, most int, six bool) (int, error) {
	outer := link
	if most > 0 {
		outer = min(outer, most)
	}
	mtu, least := encap.InnerMTU(encap.FormatVXLAN, outer, six), minMTU4-encap.FormatVXLAN.Overhead(false)
	if six {
		least = minMTU6
	}
	if mtu < least {
		return mtu, fmt.Errorf("MTU %d of %s is below the %d that it needs: raise that of the underlay, now %d, by %d",
			mtu, familyName(six), least, outer, least-mtu)
	}
	return mtu, nil
}

func familyName(six bool) string {
	if six {
		return "IPv6"
	}
	return "IPv4"
}
