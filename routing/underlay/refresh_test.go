package underlay

import (
	"testing"

	"weft/routing/internal/kernel"
)

func TestRefreshed(t *testing.T) {
	chosen := Link{Name: "eth0", Index: 2, MTU: 1500, Addr4: addr("192.0.2.11"), Ext4: addr("192.0.2.11")}
	o := Options{IPv4: true, IPv6: true}
	without := func(l listing, gone ...string) listing {
		var as []kernel.AddrInfo
	next:
		for _, a := range l.addrs {
			for _, g := range gone {
				if a.Addr == addr(g) {
					continue next
				}
			}
			as = append(as, a)
		}
		l.addrs = as
		return l
	}
	other := chosen
	other.Addr4, other.Ext4 = addr("192.0.2.10"), addr("192.0.2.10")
	nat := chosen
	nat.Ext4 = addr("203.0.113.99")

	if now, lost := chosen.refreshed(chosen, host(), o, false); now != chosen || lost != "" {
		t.Errorf("nothing changed: %+v %q", now, lost)
	}
	l := without(host(), "192.0.2.11")
	if now, lost := chosen.refreshed(chosen, l, o, false); now != chosen ||
		lost != "link eth0 has no address 192.0.2.11" {
		t.Errorf("address lost, in the time of grace: %+v %q", now, lost)
	}
	if now, lost := chosen.refreshed(chosen, l, o, true); now != other || lost != "" {
		t.Errorf("address lost for long: %+v %q", now, lost)
	}
	if now, lost := other.refreshed(chosen, l, o, false); now != other || lost != "" {
		t.Errorf("stays on the replacement: %+v %q", now, lost)
	}
	if now, lost := other.refreshed(chosen, host(), o, false); now != chosen || lost != "" {
		t.Errorf("address back: %+v %q", now, lost)
	}
	behind := o
	behind.PublicIP = nat.Ext4
	if now, _ := nat.refreshed(nat, l, behind, true); now.Addr4 != other.Addr4 || now.Ext4 != nat.Ext4 {
		t.Errorf("behind NAT the advertised address stays: %+v", now)
	}
	if _, lost := chosen.refreshed(chosen, without(l, "192.0.2.10"), o, true); lost == "" {
		t.Error("no address left, and that is not said")
	}
	gone := host()
	gone.links = gone.links[:1]
	if now, lost := chosen.refreshed(chosen, gone, o, true); now != chosen || lost != "link eth0 is gone" {
		t.Errorf("link gone: %+v %q", now, lost)
	}
	down := host()
	down.links[1].Up, down.links[1].MTU, down.links[1].Index = false, 1400, 12
	down.addrs[4].Index = 12
	if now, lost := chosen.refreshed(chosen, down, o, false); now.MTU != 1400 || now.Index != 12 ||
		lost != "link eth0 is down" {
		t.Errorf("link down and anew: %+v %q", now, lost)
	}
	late := host()
	late.addrs = append(late.addrs, kernel.AddrInfo{Index: 2, Addr: addr("2001:db8::5")})
	if now, lost := chosen.refreshed(chosen, late, o, false); now.Addr6 != addr("2001:db8::5") ||
		now.Ext6 != now.Addr6 || lost != "" {
		t.Errorf("IPv6 came late: %+v %q", now, lost)
	}
}
